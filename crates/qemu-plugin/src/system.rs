// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks when QEMU emulates a whole machine: accesses have physical addresses, and only those to memory are recorded.

use std::ffi::c_uint;

use trace::PAGE_SHIFT;

use crate::accesses::{Fetch, Fetches, attend_if_needed, fetched, instruction_begins, record};
use crate::api::{MEMORY_READ_AND_WRITE, NO_REGISTERS, Opaque};
use crate::file::ErrorOutput;
use crate::guest_memory::PAGE_BYTES;
use crate::guest_memory::ram::{Ram, RamError};
use crate::plugin::PLUGIN;
use crate::program::may_be_left_out;
use crate::vcpu::Vcpu;

/// Why nothing of a machine is recorded.
#[derive(Debug, thiserror::Error)]
#[error("nothing is recorded")]
struct NothingRecorded(#[source] RamError);

/// The machine's memory; the first thread that translates reads it.
fn ram() -> &'static Ram {
    PLUGIN.ram(|| {
        let recorder = PLUGIN.recorder();
        match Ram::read(&recorder.plan.request.memory, !PLUGIN.api().has_physical_addresses()) {
            Ok(ram) => {
                recorder.begin();
                recorder.begin_with(ram.calls());
                ram
            }
            Err(error) => {
                ErrorOutput::open().report(&NothingRecorded(error));
                Ram::default()
            }
        }
    })
}

pub fn translated<const KEEP: bool>(block: Opaque) {
    let (api, ram) = (PLUGIN.api(), ram());
    let mut parts: Vec<Part> = Vec::new();
    let count = (api.block_instructions)(block);
    for index in 0..count {
        let instruction = (api.block_instruction)(block, index);
        let physical = ram.physical((api.instruction_in_host)(instruction) as u64);
        let page = physical.map(|address| address >> PAGE_SHIFT);
        match (KEEP, physical) {
            (true, Some(address)) => {
                // Only the part in this page counts: the rest of an access or instruction in the next virtual page may be
                // anywhere in physical memory.
                let bytes = ((api.instruction_bytes)(instruction) as u64).min(PAGE_BYTES - address % PAGE_BYTES);
                let data = Fetch::new(address, bytes).to_data();
                (api.on_instruction)(instruction, instruction_begins_in_machine, NO_REGISTERS, data);
            }
            (true, None) => (api.on_instruction)(instruction, fetched_elsewhere, NO_REGISTERS, 1),
            (false, _) => {
                let in_block = !may_be_left_out(index, count, (api.instruction_address)(instruction));
                match parts.last_mut() {
                    Some(part) if part.page == page && in_block => part.instructions += 1,
                    _ => parts.push(Part { first: instruction, page, instructions: 1 }),
                }
            }
        }
        (api.on_memory)(instruction, accessed, NO_REGISTERS, MEMORY_READ_AND_WRITE, 0);
    }
    for (index, part) in parts.into_iter().enumerate() {
        let (callback, data): (extern "C" fn(c_uint, usize), usize) = match part.page {
            Some(page) => (fetched_in_machine, Fetches::of(page, part.instructions)),
            None => (fetched_elsewhere, part.instructions),
        };
        match index {
            0 => (api.on_block)(block, callback, NO_REGISTERS, data),
            _ => (api.on_instruction)(part.first, callback, NO_REGISTERS, data),
        }
    }
}

/// Consecutive instructions of a block in one page, or outside memory.
struct Part {
    first: Opaque,
    page: Option<u64>,
    instructions: usize,
}

extern "C" fn fetched_in_machine(vcpu: c_uint, data: usize) {
    PLUGIN.vcpus.while_running(vcpu, || fetched(vcpu, data));
}

extern "C" fn instruction_begins_in_machine(vcpu: c_uint, data: usize) {
    PLUGIN.vcpus.while_running(vcpu, || instruction_begins(vcpu, data));
}

/// Instructions that are not in memory but in firmware.
extern "C" fn fetched_elsewhere(vcpu: c_uint, instructions: usize) {
    PLUGIN.vcpus.while_running(vcpu, || {
        let state = PLUGIN.state(vcpu);
        attend_if_needed(state);
        state.current().count(instructions as u64);
        if state.is_recording() {
            state.outside.1 += instructions as u64;
        }
    });
}

extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    PLUGIN.vcpus.while_running(vcpu, || access(PLUGIN.state(vcpu), info, address));
}

fn access(state: &mut Vcpu, info: u32, address: u64) {
    if !state.is_recording() {
        return;
    }
    let api = PLUGIN.api();
    let handle = (api.access_in_hardware)(info, address);
    if handle.is_null() || (api.access_is_io)(handle) {
        state.outside.0 += 1;
        return;
    }
    let physical = (api.access_physical)(handle);
    if !ram().holds(physical) {
        state.outside.0 += 1;
        return;
    }
    // The rest of an access in the next virtual page may be anywhere in physical memory.
    let (kind, bytes) = PLUGIN.access_info_cache.ask(api, info);
    let in_page = physical % PAGE_BYTES + bytes <= PAGE_BYTES;
    record(state, physical, if in_page { bytes } else { 0 }, kind);
}
