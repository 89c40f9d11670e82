//! A task that was interrupted at an arbitrary instruction, and the calls that it makes there.

use std::io;

use super::paused::{PauseError, Paused};
use super::ptrace::{self, Tid};
use super::registers::{NATIVE, Registers};

/// Longest system call instruction in bytes.
const MAX_INSTRUCTION_BYTES: usize = 4;

/// A system call instruction of the program, at which an interrupted task can make calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The address after the instruction.
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

/// An interrupted task. It continues where it was, with its own registers.
pub struct Interrupted {
    paused: Paused,
    registers: Registers,
}

impl Interrupted {
    /// The task `tid`, which has stopped because the tracer interrupted it. `None` where it can make no call now: its call
    /// instruction was overwritten or unmapped, or it is inside a restartable sequence (rseq(2)), which a call would break.
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
