// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks when QEMU translates a block of a program: they decide which instructions report what.

use std::sync::atomic::Ordering;

use trace::PAGE_SHIFT;

use crate::accesses::{
    Fetch, Fetches, accessed, accessed_and_kept, accessed_once, accessed_to_modify, fetched, instruction_begins,
};
use crate::api::{MEMORY_READ_AND_WRITE, MemoryCallback, NO_REGISTERS, Opaque};
use crate::guest_memory::PAGE_BYTES;
use crate::plugin::PLUGIN;
use crate::process::begin_once;
use crate::x86_64::{AccessPattern, Instructions};

/// The longest instruction of any recorded architecture, in bytes: that of x86-64.
const INSTRUCTION_BYTES: u64 = 15;

/// Whether QEMU may report an instruction in a block that it does not execute there. When translating x86, it drops the last
/// instruction if that crosses the end of the page and is not the first (`i386_tr_translate_insn`); before QEMU 8.2 plugins still
/// see it. The instruction then begins the next block too. It gets a callback of its own, which is dropped with it, so it is
/// counted only where it executes.
pub fn may_be_left_out(index: usize, count: usize, address: u64) -> bool {
    index > 0 && index + 1 == count && address & (PAGE_BYTES - 1) > PAGE_BYTES - INSTRUCTION_BYTES
}

/// For a block whose addresses are kept: every instruction reports itself and each of its accesses.
pub fn translated_and_kept(block: Opaque) {
    begin_once(block);
    let api = PLUGIN.api();
    for (index, pattern) in access_patterns(block).into_iter().enumerate() {
        let instruction = (api.block_instruction)(block, index);
        let fetch = Fetch::new((api.instruction_address)(instruction), (api.instruction_bytes)(instruction) as u64);
        (api.on_instruction)(instruction, instruction_begins, NO_REGISTERS, fetch.to_data());
        let modifies = usize::from(pattern == AccessPattern::Modifies);
        (api.on_memory)(instruction, accessed_and_kept, NO_REGISTERS, MEMORY_READ_AND_WRITE, modifies);
    }
}

/// For other blocks: the instructions of each page are reported together when the block begins.
pub fn translated(block: Opaque) {
    begin_once(block);
    let api = PLUGIN.api();
    for (index, pattern) in access_patterns(block).into_iter().enumerate() {
        let instruction = (api.block_instruction)(block, index);
        let callback: MemoryCallback = match pattern {
            AccessPattern::Loads => accessed_once::<false>,
            AccessPattern::Stores => accessed_once::<true>,
            AccessPattern::Modifies => accessed_to_modify,
            AccessPattern::Unknown => accessed,
        };
        (api.on_memory)(instruction, callback, NO_REGISTERS, MEMORY_READ_AND_WRITE, 0);
    }
    for (number, (index, part)) in parts(block).into_iter().enumerate() {
        match number {
            0 => (api.on_block)(block, fetched, NO_REGISTERS, part.to_data()),
            _ => (api.on_instruction)((api.block_instruction)(block, index), fetched, NO_REGISTERS, part.to_data()),
        }
    }
}

/// The instructions of a block by page, each with the index of the first.
fn parts(block: Opaque) -> Vec<(usize, Fetches)> {
    let api = PLUGIN.api();
    let count = (api.block_instructions)(block);
    let mut parts: Vec<(usize, Fetches)> = Vec::new();
    for index in 0..count {
        let instruction = (api.block_instruction)(block, index);
        let (address, bytes) = ((api.instruction_address)(instruction), (api.instruction_bytes)(instruction) as u64);
        let (page, last) = (address >> PAGE_SHIFT, (address + bytes.max(1) - 1) >> PAGE_SHIFT);
        let in_block = !may_be_left_out(index, count, address);
        match parts.last_mut() {
            Some((_, part)) if part.page() >> PAGE_SHIFT == page && in_block => part.add(),
            _ => parts.push((index, Fetches::one(page))),
        }
        if last != page {
            parts.push((index, Fetches::rest(last)));
        }
    }
    parts
}

/// How the instructions of a block access memory, as far as that is known for their instruction set.
fn access_patterns(block: Opaque) -> Vec<AccessPattern> {
    let api = PLUGIN.api();
    let count = (api.block_instructions)(block);
    if !PLUGIN.program.is_x86_64.load(Ordering::Relaxed) {
        return vec![AccessPattern::Unknown; count];
    }
    let mut instructions = Instructions::new();
    let pattern = |index| {
        let instruction = (api.block_instruction)(block, index);
        let (bytes, host) = ((api.instruction_bytes)(instruction), (api.instruction_in_host)(instruction));
        // SAFETY: QEMU has just read the instruction there, and its lock keeps the program's memory mapped.
        let code = if host.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(host, bytes) } };
        instructions.access_pattern(code)
    };
    (0..count).map(pattern).collect()
}
