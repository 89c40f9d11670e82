//! [`Paused`] is a task that is stopped at a watched system call, with the operations that the tracer can perform there.

use std::io;

use super::ptrace::{self, Stop, Tid};
use super::registers::{NATIVE, Registers};
use super::witness::Caller;
use crate::subreaper;

/// Why an operation on a paused task could not be completed.
#[derive(Debug)]
pub enum PauseError {
    /// The task left its pause because it is ending. The event loop must handle the stop.
    Stopped(Stop),
    /// The task has ended. The event loop receives, or has received, its end.
    Ended,
    /// The kernel refused a request on a live task, which then cannot continue.
    Refused(io::Error),
}

impl From<io::Error> for PauseError {
    fn from(error: io::Error) -> PauseError {
        match error.raw_os_error() {
            // ESRCH or ECHILD for a stopped tracee only means that it was killed meanwhile.
            Some(libc::ESRCH | libc::ECHILD) => PauseError::Ended,
            _ => PauseError::Refused(error),
        }
    }
}

/// Where the task is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopPoint {
    /// Before the call: the call can be changed or skipped.
    Entry,
    /// After a call: going back to the call instruction makes another call.
    Exit,
}

/// A task at the entry of a watched call. The tracer can make it issue other calls, before or instead of that call. Then the task
/// is resumed with a result, as if it had made only its own call.
pub struct Paused {
    tid: Tid,
    place: StopPoint,
    registers: Registers,
    number: i64,
    arguments: [u64; 6],
    saved_signal_mask: Option<u64>,
    /// Whether to interrupt the task as it is resumed: to return it to a group stop (SIGSTOP) that it left, or to make the kernel
    /// restart a call that was interrupted.
    interrupt_on_resume: bool,
}

impl Paused {
    /// The task `tid`, which has stopped at a watched call.
    pub fn at_entry(tid: Tid) -> Result<Paused, PauseError> {
        let registers = ptrace::registers(tid)?;
        let number = ptrace::call_number(tid, &NATIVE, &registers)?;
        let arguments =
            if NATIVE.first_argument_at_entry { registers.arguments(&NATIVE) } else { ptrace::call_arguments(tid)? };
        Ok(Paused {
            tid,
            place: StopPoint::Entry,
            registers,
            number,
            arguments,
            saved_signal_mask: None,
            interrupt_on_resume: false,
        })
    }

    /// The task `tid`, which was just created and has not run yet: it is stopped after its creator's call.
    pub fn at_birth(tid: Tid) -> Result<Paused, PauseError> {
        let registers = ptrace::registers(tid)?;
        let arguments = registers.arguments(&NATIVE);
        Ok(Paused {
            tid,
            place: StopPoint::Exit,
            registers,
            number: -1,
            arguments,
            saved_signal_mask: None,
            interrupt_on_resume: false,
        })
    }

    /// The task `tid`, which is stopped anywhere, as if it had just made a call at the instruction before `after_call`.
    pub fn as_if_after_call(tid: Tid, mut registers: Registers, after_call: u64) -> Paused {
        registers.words[NATIVE.instruction] = after_call;
        Paused {
            tid,
            place: StopPoint::Exit,
            registers,
            number: -1,
            arguments: [0; 6],
            saved_signal_mask: None,
            interrupt_on_resume: false,
        }
    }

    /// Resumes the task with these registers. It stops once more on the way, because the tracer interrupts it.
    pub fn resume_with(mut self, registers: &Registers) -> Result<(), PauseError> {
        ptrace::set_registers(self.tid, registers)?;
        self.interrupt_on_resume = true;
        self.resume()
    }

    /// The result of the call after which the task is stopped.
    pub fn returned(&self) -> i64 {
        self.registers.result(&NATIVE)
    }

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

    /// The registers of the program at the call, without its stack.
    pub fn caller(&self) -> Caller {
        let words = &self.registers.words;
        Caller {
            instruction: words[NATIVE.instruction],
            stack: words[NATIVE.stack],
            frame: words[NATIVE.frame],
            link: NATIVE.link.map_or(0, |at| words[at]),
            stack_bytes: Vec::new(),
        }
    }

    /// Lets the task make the call at which it stopped. The result is negative for an error.
    pub fn original_call(&mut self) -> Result<i64, PauseError> {
        self.call(self.number, self.arguments)
    }

    /// Makes the task issue a call. The result is negative for an error. The program's own seccomp filter sees the call too.
    pub fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, PauseError> {
        match self.place {
            StopPoint::Entry if NATIVE.first_argument_at_entry || arguments[0] == self.arguments[0] => {
                ptrace::set_call(self.tid, &NATIVE, &self.registers, number, arguments)?;
            }
            StopPoint::Entry => {
                self.skip()?;
                self.rewind(number, arguments)?;
            }
            StopPoint::Exit => self.rewind(number, arguments)?,
        }
        let result = self.run_to_exit()?;
        self.place = StopPoint::Exit;
        Ok(result)
    }

    /// Resumes the task without any further call, with `result` as the result of its own call.
    pub fn finish(mut self, result: i64) -> Result<(), PauseError> {
        if self.place == StopPoint::Entry && NATIVE.number_at_entry == Some(NATIVE.number) {
            // The number is in one of the program's registers, which a skipped call must not change.
            self.skip()?;
        }
        let registers = self.registers.returning(&NATIVE, result);
        match self.place {
            // Number -1 is no call: the kernel skips it and does not touch the result.
            StopPoint::Entry => {
                if NATIVE.number_at_entry.is_none() {
                    ptrace::set_call(self.tid, &NATIVE, &registers, -1, self.arguments)?;
                }
                ptrace::set_registers(self.tid, &skipped(registers))?;
            }
            StopPoint::Exit => ptrace::set_registers(self.tid, &registers)?,
        }
        self.resume()
    }

    /// Resumes the task to make its own call: at full speed if it has made no other call before.
    pub fn pass(mut self) -> Result<(), PauseError> {
        match self.place {
            StopPoint::Entry => Ok(ptrace::resume(self.tid, 0)?),
            // The event loop, not this function, must receive the announcement of the new task.
            StopPoint::Exit if creates_task(self.number) => self.restart_call(),
            StopPoint::Exit => {
                let result = self.original_call()?;
                self.finish(result)
            }
        }
    }

    /// Resumes the task before its own call, as if it had not reached that call yet. It stops again if the call is watched.
    pub fn restart_call(mut self) -> Result<(), PauseError> {
        if self.place == StopPoint::Entry {
            self.skip()?;
        }
        self.rewind(self.number, self.arguments)?;
        self.resume()
    }

    fn resume(&mut self) -> Result<(), PauseError> {
        if let Some(mask) = self.saved_signal_mask.take() {
            ptrace::set_signal_mask(self.tid, mask)?;
        }
        if self.interrupt_on_resume {
            ptrace::interrupt(self.tid)?;
        }
        Ok(ptrace::resume(self.tid, 0)?)
    }

    /// Steps over the call instruction without making a call.
    fn skip(&mut self) -> Result<(), PauseError> {
        ptrace::set_call(self.tid, &NATIVE, &self.registers, -1, self.arguments)?;
        self.run_to_exit()?;
        self.place = StopPoint::Exit;
        Ok(())
    }

    fn rewind(&mut self, number: i64, arguments: [u64; 6]) -> Result<(), PauseError> {
        self.block_signals()?;
        Ok(ptrace::set_registers(self.tid, &self.registers.rewound(&NATIVE, number, arguments))?)
    }

    /// On its way to a second call the task passes the point of signal delivery. A handler that ran there would see,
    /// and return to, registers that are not the program's.
    fn block_signals(&mut self) -> Result<(), PauseError> {
        if self.saved_signal_mask.is_none() {
            self.saved_signal_mask = Some(ptrace::signal_mask(self.tid)?);
            ptrace::set_signal_mask(self.tid, u64::MAX)?;
        }
        Ok(())
    }

    fn run_to_exit(&mut self) -> Result<i64, PauseError> {
        let mut entries = u32::from(self.place == StopPoint::Exit);
        let mut signal = 0;
        loop {
            ptrace::resume_to_syscall(self.tid, signal)?;
            signal = 0;
            match self.wait()? {
                Stop::Syscall if entries > 0 => entries -= 1,
                Stop::Syscall => return Ok(ptrace::registers(self.tid)?.result(&NATIVE)),
                // A watched call that the tracer itself makes, or the end of a group stop.
                Stop::Seccomp | Stop::Trap => {}
                // SIGSTOP is the only signal that arrives here. It stops the other threads of the process at once. This task
                // leaves the group stop again, and returns to it when it is resumed.
                Stop::Signal(number) => signal = number,
                Stop::Group => self.interrupt_on_resume = true,
                other => return Err(PauseError::Stopped(other)),
            }
        }
    }

    /// Waits for this task only; the stops of other tasks are left to the event loop.
    ///
    /// The first task of a killed process can become a zombie without a stop. The kernel does not report it until the other
    /// threads of its process have ended, and these threads may be waiting for the tracer. So this function checks on every
    /// event of the tree whether the task still lives. If the tree is being killed, the deaths of other tasks are such
    /// events.
    fn wait(&self) -> Result<Stop, PauseError> {
        let mut others_stopped = false;
        loop {
            if let Some((_, stop)) = ptrace::try_wait(self.tid)? {
                return Ok(stop);
            }
            if others_stopped && ptrace::is_zombie(self.tid)? {
                return Err(PauseError::Ended);
            }
            if subreaper::is_ending() {
                ptrace::kill(self.tid);
            }
            ptrace::wait_for_any_event()?;
            others_stopped = true;
        }
    }
}

/// Whether a call creates a process or a thread.
pub fn creates_task(number: i64) -> bool {
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
