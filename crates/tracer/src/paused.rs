//! A task that is paused at a watched system call, and the operations that are possible there.

use std::io;

use super::ptrace::{self, Stop, Tid};
use super::registers::{NATIVE, Registers};
use crate::subreaper;

/// Why an operation on a paused task could not be completed.
#[derive(Debug)]
pub enum Lost {
    /// The task left its pause because it is ending. The main loop must handle the stop.
    Stopped(Stop),
    /// The task is gone. The main loop receives, or has received, its end.
    Gone,
    /// The kernel refused a request on a live task, which then cannot continue.
    Refused(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Lost {
        match error.raw_os_error() {
            // ESRCH or ECHILD for a stopped tracee only means that it was killed meanwhile.
            Some(libc::ESRCH | libc::ECHILD) => Lost::Gone,
            _ => Lost::Refused(error),
        }
    }
}

/// Where the task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the call: the call can be changed or skipped.
    Entry,
    /// After a call: going back to the call instruction makes another call.
    Exit,
}

/// A task at the entry of a watched call. It can make other calls in its own name, before or instead of its own. Then
/// it is resumed with a result as if it had made only its own call.
pub struct Paused {
    tid: Tid,
    place: Place,
    registers: Registers,
    number: i64,
    arguments: [u64; 6],
    blocked: Option<u64>,
    /// Whether it left a group stop (SIGSTOP) to finish here, and must return to it.
    left_a_stop: bool,
}

impl Paused {
    /// The task `tid`, which has stopped at a watched call.
    pub fn at_entry(tid: Tid) -> Result<Paused, Lost> {
        let registers = ptrace::registers(tid)?;
        let number = ptrace::call_number(tid, &NATIVE, &registers)?;
        let arguments =
            if NATIVE.first_argument_at_entry { registers.arguments(&NATIVE) } else { ptrace::call_arguments(tid)? };
        Ok(Paused { tid, place: Place::Entry, registers, number, arguments, blocked: None, left_a_stop: false })
    }

    /// The task `tid`, which was just created and has not run yet: it is stopped after its maker's call.
    pub fn at_birth(tid: Tid) -> Result<Paused, Lost> {
        let registers = ptrace::registers(tid)?;
        let arguments = registers.arguments(&NATIVE);
        Ok(Paused { tid, place: Place::Exit, registers, number: -1, arguments, blocked: None, left_a_stop: false })
    }

    /// The result of the call after which the task is stopped.
    pub fn returned(&self) -> i64 {
        self.registers.result(&NATIVE)
    }

    /// The task's id.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The number of the call that the program is making.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// The arguments that the program passed.
    pub fn arguments(&self) -> [u64; 6] {
        self.arguments
    }

    /// The instruction pointer, as a seccomp filter sees it.
    pub fn instruction_pointer(&self) -> u64 {
        self.registers.words[NATIVE.instruction]
    }

    /// Lets the task make the call at which it stopped. The result is negative for an error.
    pub fn original_call(&mut self) -> Result<i64, Lost> {
        self.call(self.number, self.arguments)
    }

    /// Makes the task issue a call. The result is negative for an error. The program's own seccomp filter sees the call too.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, Lost> {
        match self.place {
            Place::Entry if NATIVE.first_argument_at_entry || arguments[0] == self.arguments[0] => {
                ptrace::set_call(self.tid, &NATIVE, &self.registers, number, arguments)?;
            }
            Place::Entry => {
                self.skip()?;
                self.rewind(number, arguments)?;
            }
            Place::Exit => self.rewind(number, arguments)?,
        }
        let result = self.run_to_exit()?;
        self.place = Place::Exit;
        Ok(result)
    }

    /// Resumes the task without any further call, with `result` as the result of its own call.
    pub fn finish(mut self, result: i64) -> Result<(), Lost> {
        if self.place == Place::Entry && NATIVE.number_at_entry == Some(NATIVE.number) {
            // The number is in one of the program's registers, which a skipped call must not change.
            self.skip()?;
        }
        let registers = self.registers.returning(&NATIVE, result);
        match self.place {
            // Number -1 is no call: the kernel skips it and does not touch the result.
            Place::Entry => {
                if NATIVE.number_at_entry.is_none() {
                    ptrace::set_call(self.tid, &NATIVE, &registers, -1, self.arguments)?;
                }
                ptrace::set_registers(self.tid, &skipped(registers))?;
            }
            Place::Exit => ptrace::set_registers(self.tid, &registers)?,
        }
        self.send_on()
    }

    /// Resumes the task to make its own call: at full speed if it has made no other call before.
    pub fn pass(mut self) -> Result<(), Lost> {
        match self.place {
            Place::Entry => Ok(ptrace::resume(self.tid, 0)?),
            // The new task is announced to the main loop, not here.
            Place::Exit if makes_a_process(self.number) => self.again(),
            Place::Exit => {
                let result = self.original_call()?;
                self.finish(result)
            }
        }
    }

    /// Resumes the task to make its own call as if it had not made it yet. It stops again if the call is watched.
    pub fn again(mut self) -> Result<(), Lost> {
        if self.place == Place::Entry {
            self.skip()?;
        }
        self.rewind(self.number, self.arguments)?;
        self.send_on()
    }

    fn send_on(&mut self) -> Result<(), Lost> {
        if let Some(mask) = self.blocked.take() {
            ptrace::set_signal_mask(self.tid, mask)?;
        }
        if self.left_a_stop {
            ptrace::interrupt(self.tid)?;
        }
        Ok(ptrace::resume(self.tid, 0)?)
    }

    /// Steps over the call instruction without making a call.
    fn skip(&mut self) -> Result<(), Lost> {
        ptrace::set_call(self.tid, &NATIVE, &self.registers, -1, self.arguments)?;
        self.run_to_exit()?;
        self.place = Place::Exit;
        Ok(())
    }

    fn rewind(&mut self, number: i64, arguments: [u64; 6]) -> Result<(), Lost> {
        self.block_signals()?;
        Ok(ptrace::set_registers(self.tid, &self.registers.rewound(&NATIVE, number, arguments))?)
    }

    /// On its way to a second call the task passes the point of signal delivery. A handler that ran there would see,
    /// and return to, registers that are not the program's.
    fn block_signals(&mut self) -> Result<(), Lost> {
        if self.blocked.is_none() {
            self.blocked = Some(ptrace::signal_mask(self.tid)?);
            ptrace::set_signal_mask(self.tid, u64::MAX)?;
        }
        Ok(())
    }

    fn run_to_exit(&mut self) -> Result<i64, Lost> {
        let mut entries = u32::from(self.place == Place::Exit);
        let mut signal = 0;
        loop {
            ptrace::resume_to_syscall(self.tid, signal)?;
            signal = 0;
            match self.wait()? {
                Stop::Syscall if entries > 0 => entries -= 1,
                Stop::Syscall => return Ok(ptrace::registers(self.tid)?.result(&NATIVE)),
                // A watched call that the tracer itself makes; the end of a stop.
                Stop::Seccomp | Stop::Trap => {}
                // SIGSTOP is the only signal that arrives here. It takes effect for the process at once. This task
                // leaves the stop again, and returns to it when it is resumed.
                Stop::Signal(number) => signal = number,
                Stop::Group => self.left_a_stop = true,
                other => return Err(Lost::Stopped(other)),
            }
        }
    }

    /// Waits for this task only; the stops of other tasks are left for the main loop.
    ///
    /// The first task of a killed process can become a zombie without a stop. It cannot be waited for until its other
    /// threads have ended, and these wait for the tracer. So on every event of the tree this checks whether the task
    /// still lives. If the tree is to end, the deaths of other tasks are such events.
    fn wait(&self) -> Result<Stop, Lost> {
        let mut others_came = false;
        loop {
            if let Some((_, stop)) = ptrace::try_wait(self.tid)? {
                return Ok(stop);
            }
            if others_came && ptrace::is_zombie(self.tid)? {
                return Err(Lost::Gone);
            }
            if subreaper::is_ending() {
                ptrace::kill(self.tid);
            }
            ptrace::wait_for_any_event()?;
            others_came = true;
        }
    }
}

/// Whether a call creates a process or a thread.
pub fn makes_a_process(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_fork {
        return true;
    }
    matches!(number, libc::SYS_clone | libc::SYS_clone3)
}

/// Registers of a skipped call. If the call number is one of the registers, it must stay -1.
fn skipped(mut registers: Registers) -> Registers {
    if let Some(at) = NATIVE.number_at_entry {
        registers.words[at] = u64::MAX;
    }
    registers
}
