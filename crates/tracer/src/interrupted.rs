//! A task that was [`Interrupted`] at an arbitrary instruction, and the calls that the tracer makes it issue there.

use std::io;

use super::paused::{PauseError, Paused};
use super::ptrace::{self, Tid};
use super::registers::{Layout, NATIVE, Registers};

/// Longest system call instruction in bytes.
const MAX_INSTRUCTION_BYTES: usize = 4;

/// A system call instruction of the program, at which an interrupted task can make calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The address after that instruction.
    after: u64,
    code: [u8; MAX_INSTRUCTION_BYTES],
}

impl CallSite {
    /// The call instruction that a task has just executed; `None` if it cannot be read.
    pub fn of(paused: &Paused) -> Option<CallSite> {
        let after = paused.instruction_pointer();
        Some(CallSite { after, code: code_before(paused.tid(), after).ok()? })
    }

    /// Whether the instruction is still there.
    fn is_valid(&self, tid: Tid) -> bool {
        code_before(tid, self.after).is_ok_and(|code| code == self.code)
    }
}

fn code_before(tid: Tid, after: u64) -> io::Result<[u8; MAX_INSTRUCTION_BYTES]> {
    let mut code = [0; MAX_INSTRUCTION_BYTES];
    let bytes = NATIVE.instruction_bytes as usize;
    ptrace::read_memory(tid, after - NATIVE.instruction_bytes, &mut code[..bytes])?;
    Ok(code)
}

/// Whether a stopped task is inside the restartable sequence that its rseq(2) area names (`struct rseq_cs`,
/// include/uapi/linux/rseq.h). An area that cannot be read counts as inside.
fn is_in_rseq(tid: Tid, instruction: u64) -> bool {
    /// Offset of `rseq_cs` in `struct rseq`.
    const SEQUENCE: u64 = 8;
    /// Offset of `start_ip` in `struct rseq_cs`; `post_commit_offset` follows.
    const START: u64 = 8;
    let Some(area) = ptrace::rseq_area(tid) else { return false };
    let mut pointer = [0; 8];
    if ptrace::read_memory(tid, area.address + SEQUENCE, &mut pointer).is_err() {
        return true;
    }
    let sequence = u64::from_ne_bytes(pointer);
    let (mut start, mut length) = ([0; 8], [0; 8]);
    sequence != 0
        && (ptrace::read_memory(tid, sequence + START, &mut start).is_err()
            || ptrace::read_memory(tid, sequence + START + 8, &mut length).is_err()
            || instruction.wrapping_sub(u64::from_ne_bytes(start)) < u64::from_ne_bytes(length))
}

/// Calls that fail with EINTR if a tracer's stop interrupts them; the kernel restarts all others (signal(7)). A call that
/// failed in this way had no effect, so it can be repeated.
const REPEATABLE: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
];

/// Makes a stopped task repeat a call in which it was about to sleep, if only the tracer's interruption ended that call. Only
/// x86-64 shows the call's number and all of its arguments at such a stop; on other architectures the call fails.
pub fn repeat_interrupted_call(tid: Tid) -> Result<(), PauseError> {
    let registers = ptrace::registers(tid)?;
    if let Some(number) = interrupted_call(&NATIVE, &registers)
        && !has_signal(tid)
    {
        let arguments = registers.arguments(&NATIVE);
        ptrace::set_registers(tid, &registers.rewound(&NATIVE, number, arguments))?;
    }
    Ok(())
}

/// The number of a repeatable call that was interrupted.
fn interrupted_call(layout: &Layout, registers: &Registers) -> Option<i64> {
    let number = registers.words[layout.number_at_entry?] as i64;
    let is_interrupted = registers.result(layout) == -i64::from(libc::EINTR);
    (layout.first_argument_at_entry && is_interrupted && REPEATABLE.contains(&number)).then_some(number)
}

/// Whether a task has a pending signal that it does not block: such a signal would also have ended the call. True if this
/// cannot be read.
fn has_signal(tid: Tid) -> bool {
    let Ok(status) = host::content(format!("/proc/{tid}/status")) else { return true };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

/// An interrupted task. It continues where it was, with its own registers.
pub struct Interrupted {
    paused: Paused,
    registers: Registers,
}

impl Interrupted {
    /// The task `tid`, which has stopped because the tracer interrupted it. `None` if the task can make no call now: the
    /// known call instruction was overwritten or unmapped, or the task is inside a restartable sequence (rseq(2)), which a
    /// call would break.
    ///
    /// # Errors
    /// The task has ended, or its registers cannot be read.
    pub fn at(tid: Tid, site: CallSite) -> Result<Option<Interrupted>, PauseError> {
        let registers = ptrace::registers(tid)?;
        if !site.is_valid(tid) || is_in_rseq(tid, registers.words[NATIVE.instruction]) {
            return Ok(None);
        }
        Ok(Some(Interrupted { paused: Paused::as_if_after_call(tid, registers, site.after), registers }))
    }

    /// The paused task, to make calls.
    pub fn paused(&mut self) -> &mut Paused {
        &mut self.paused
    }

    /// Resumes the task. It stops once more on its way: only at that stop does the kernel restart an
    /// interrupted call.
    pub fn resume(self) -> Result<(), PauseError> {
        self.paused.resume_with(&self.registers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::{AARCH64, RISCV64, X86_64};

    #[test]
    fn only_an_interrupted_call_that_can_be_repeated_is_one() {
        let found = |layout: &Layout, number: i64, result: i64| {
            let mut registers = Registers::ZERO;
            if let Some(at) = layout.number_at_entry {
                registers.words[at] = number as u64;
            }
            interrupted_call(layout, &registers.returning(layout, result))
        };
        let eintr = -i64::from(libc::EINTR);
        let waits = libc::SYS_epoll_pwait;
        assert_eq!(found(&X86_64, waits, eintr), Some(waits));
        assert_eq!(found(&X86_64, waits, 1), None);
        assert_eq!(found(&X86_64, -1, eintr), None, "no call");
        assert_eq!(found(&X86_64, libc::SYS_connect, eintr), None, "it continues meanwhile");
        for layout in [AARCH64, RISCV64] {
            assert_eq!(found(&layout, waits, eintr), None, "its first argument is not known");
        }
    }

    #[test]
    fn a_signal_that_waits_is_seen() {
        let own = nix::unistd::gettid().as_raw();
        assert!(!has_signal(own));
        assert!(has_signal(i32::MAX), "unknown");
    }
}
