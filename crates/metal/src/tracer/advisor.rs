//! Advice at the price of one stop: a few instructions in the program's own memory.
//!
//! Calling madvise in a task's name takes three more stops after that of its mmap. A program that maps
//! often is instead given a page of code once. Its mmap then returns there, and the code advises what was
//! mapped and goes on where the program would have, every register as it was. The page costs four stops,
//! so it is made for memories in which that has paid off.

use super::paused::{Lost, Paused};
use super::ptrace;
use super::registers::{NATIVE, is_error};

/// Mappings that are advised by the tracer before the code is made.
const AFTER_MAPPINGS: u32 = 8;

/// The state of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advisor {
    /// No code yet; so many mappings were advised by the tracer.
    Absent(u32),
    /// The code stands at this address.
    At(u64),
    /// It cannot be had: another architecture, or the program may not have executable memory.
    Impossible,
}

impl Default for Advisor {
    fn default() -> Advisor {
        if cfg!(target_arch = "x86_64") { Advisor::Absent(0) } else { Advisor::Impossible }
    }
}

impl Advisor {
    /// Where the code stands, if a task at a call of mmap can return there.
    pub fn for_task(&self, paused: &Paused) -> Option<u64> {
        match self {
            // The code goes on at the address in rcx, where the instruction `syscall` puts its successor's.
            Advisor::At(address) if paused.word(X86_64_RCX) == paused.instruction_pointer() => Some(*address),
            _ => None,
        }
    }

    /// The page that holds the code.
    pub fn page(&self) -> Option<u64> {
        match self {
            Advisor::At(page) => Some(*page),
            Advisor::Absent(_) | Advisor::Impossible => None,
        }
    }

    /// Notes a mapping that the tracer has advised, and makes the code when it has paid off. The task
    /// stands behind its call.
    pub fn learn(&mut self, paused: &mut Paused, advice: u64) -> Result<(), Lost> {
        match self {
            Advisor::Absent(mappings) if *mappings >= AFTER_MAPPINGS => {
                *self = install(paused, advice)?.map_or(Advisor::Impossible, Advisor::At);
            }
            Advisor::Absent(mappings) => *mappings += 1,
            Advisor::At(_) | Advisor::Impossible => {}
        }
        Ok(())
    }

    /// The program has unmapped the code, and a task has run into the hole: where it would have gone on.
    pub fn lost_by(&mut self, registers: &super::registers::Registers) -> Option<u64> {
        match self {
            Advisor::At(address) if registers.words[NATIVE.instruction] == *address => {
                *self = Advisor::Impossible;
                Some(registers.words[X86_64_RCX])
            }
            _ => None,
        }
    }
}

/// The position of rcx in `struct user_regs_struct`.
const X86_64_RCX: usize = 11;

fn install(paused: &mut Paused, advice: u64) -> Result<Option<u64>, Lost> {
    place_code(paused, &x86_64(advice as u32), None)
}

/// Puts code into a page of its own in a task's memory, at an address that must be free or wherever the kernel
/// likes; `None` where the program may not have executable memory, or not there. Takes calls of the task.
pub fn place_code(paused: &mut Paused, code: &[u8], at: Option<u64>) -> Result<Option<u64>, Lost> {
    let (bytes, read_write) = (code.len() as u64, (libc::PROT_READ | libc::PROT_WRITE) as u64);
    let exactly = if at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | exactly) as u64;
    let page = paused.call(libc::SYS_mmap, [at.unwrap_or(0), bytes, read_write, flags, u64::MAX, 0])?;
    if is_error(page) {
        return Ok(None);
    }
    // Before Linux 4.17 the address is only a wish.
    let there = at.is_none_or(|at| at == page as u64);
    let written = there && ptrace::write_memory(paused.tid(), page as u64, code).is_ok();
    let read_execute = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    if written && paused.call(libc::SYS_mprotect, [page as u64, bytes, read_execute, 0, 0, 0])? == 0 {
        return Ok(Some(page as u64));
    }
    paused.call(libc::SYS_munmap, [page as u64, bytes, 0, 0, 0, 0])?;
    Ok(None)
}

/// The code for x86-64. It is entered behind mmap: rax is the new mapping, rsi its length. Where mmap
/// failed, rax is an error number, which is no address of a page, and madvise does nothing.
fn x86_64(advice: u32) -> Vec<u8> {
    let [a, b, c, d] = advice.to_le_bytes();
    let [e, f, g, h] = (libc::SYS_madvise as u32).to_le_bytes();
    [
        &[0x48, 0x8d, 0x64, 0x24, 0x80][..],      // lea rsp, [rsp - 128]: over the red zone
        &[0x51, 0x57, 0x52, 0x50],                // push rcx, rdi, rdx, rax
        &[0x48, 0x89, 0xc7],                      // mov rdi, rax
        &[0xba, a, b, c, d],                      // mov edx, advice
        &[0xb8, e, f, g, h],                      // mov eax, SYS_madvise
        &[0x0f, 0x05],                            // syscall
        &[0x58, 0x5a, 0x5f, 0x59],                // pop rax, rdx, rdi, rcx
        &[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0], // lea rsp, [rsp + 128]
        &[0xff, 0xe1],                            // jmp rcx
    ]
    .concat()
}
