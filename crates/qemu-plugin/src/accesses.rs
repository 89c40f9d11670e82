// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU calls for instructions and for accesses: the hot path.
//!
//! What is seldom needed stands apart, so that the callbacks that are called often save no registers.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use trace::{Call, Kind, PAGE_SHIFT, page_of};

use crate::api::{Api, MEMORY_READ, MEMORY_WRITE, MemoryCallback, NO_REGISTERS, Opaque};
use crate::plugin::PLUGIN;
use crate::vcpu::{Attention, Vcpu};

/// Instructions of a block that lie in one page. It travels in the pointer that QEMU hands back to callbacks: the page's
/// address, and in the bits below the number of fetches and whether the first is the rest of an instruction that
/// begins in the page before.
#[derive(Clone, Copy)]
pub struct Fetches(usize);

const CONTINUES: usize = 1 << 11;

impl Fetches {
    /// An instruction that begins in a page.
    pub fn one(page: u64) -> Fetches {
        Fetches(Fetches::new(page, false).0 + 1)
    }

    /// The rest of an instruction that begins in the page before.
    pub fn rest(page: u64) -> Fetches {
        Fetches::new(page, true)
    }

    /// Adds an instruction.
    pub fn add(&mut self) {
        self.0 += 1;
    }

    /// As QEMU hands them back.
    pub fn to_data(self) -> usize {
        self.0
    }

    fn new(page: u64, continues: bool) -> Fetches {
        Fetches((page << PAGE_SHIFT) as usize | if continues { CONTINUES + 1 } else { 0 })
    }

    /// Those of so many instructions that begin in a page, as QEMU hands them back.
    pub fn of(page: u64, instructions: usize) -> usize {
        Fetches::new(page, false).0 + instructions
    }

    /// The address of the page.
    pub fn page(self) -> u64 {
        page_of(self.0 as u64)
    }

    fn accesses(self) -> u64 {
        self.0 as u64 & (CONTINUES as u64 - 1)
    }

    fn instructions(self) -> u64 {
        self.accesses() - u64::from(self.0 & CONTINUES != 0)
    }
}

/// One instruction that tells itself. It travels as [`Fetches`] do: its address, and in the bits below its bytes.
#[derive(Clone, Copy)]
pub struct Fetch(usize);

/// Bits for the bytes of an instruction, of which none has more than 15.
const BYTES_BITS: u32 = 4;
const BYTES: usize = (1 << BYTES_BITS) - 1;

impl Fetch {
    /// That of an instruction.
    pub fn new(address: u64, bytes: u64) -> Fetch {
        Fetch((address << BYTES_BITS) as usize | bytes as usize & BYTES)
    }

    /// As QEMU hands it back.
    pub fn to_data(self) -> usize {
        self.0
    }

    fn address(self) -> u64 {
        self.0 as u64 >> BYTES_BITS
    }

    fn bytes(self) -> u64 {
        (self.0 & BYTES) as u64
    }
}

pub extern "C" fn fetched(vcpu: c_uint, data: usize) {
    let fetches = Fetches(data);
    if let Some(current) = PLUGIN.current(vcpu)
        && !current.needs_attention(PLUGIN.events.load(Ordering::Relaxed))
        && current.fetch(fetches.page(), fetches.accesses())
    {
        return current.count(fetches.instructions());
    }
    fetched_slowly(vcpu, data);
}

#[cold]
#[inline(never)]
extern "C" fn fetched_slowly(vcpu: c_uint, data: usize) {
    let (state, fetches) = (PLUGIN.state(vcpu), Fetches(data));
    attend_if_needed(state);
    if state.is_recording() && !state.current().fetch(fetches.page(), fetches.accesses()) {
        PLUGIN.recorder().empty(state);
        state.current().fetch(fetches.page(), fetches.accesses());
    }
    state.current().count(fetches.instructions());
}

pub extern "C" fn instruction_begins(vcpu: c_uint, data: usize) {
    let (state, fetch) = (PLUGIN.state(vcpu), Fetch(data));
    attend_if_needed(state);
    state.current().count(1);
    record(state, fetch.address(), fetch.bytes(), Kind::FETCH);
}

/// Does what has to be done before more instructions are counted.
#[inline(always)]
pub fn attend_if_needed(state: &mut Vcpu) {
    if state.current().needs_attention(PLUGIN.events.load(Ordering::Relaxed)) {
        attend(state);
    }
}

#[cold]
fn attend(state: &mut Vcpu) {
    let recorder = PLUGIN.recorder();
    if state.seen() != PLUGIN.events.load(Ordering::Relaxed) {
        recorder.note_seen(state);
    }
    while state.needs_attention() {
        match state.attend() {
            Attention::Opened => recorder.note(state, Call::Window { instructions: state.instructions() }, 0),
            Attention::Begun => PLUGIN.processors.begins(),
            Attention::Closed => recorder.write(state),
            Attention::Complete => {
                recorder.write(state);
                if PLUGIN.processors.is_complete() && recorder.plan.header.system {
                    recorder.say_complete();
                }
            }
            Attention::Due => recorder.empty(state),
        }
    }
}

/// Asks QEMU to tell the loads and stores of an instruction, each by a callback of its own, so that none asks which it is.
pub fn tell_accesses(api: &Api, instruction: Opaque, loads: MemoryCallback, stores: MemoryCallback) {
    (api.on_memory)(instruction, loads, NO_REGISTERS, MEMORY_READ, 0);
    (api.on_memory)(instruction, stores, NO_REGISTERS, MEMORY_WRITE, 0);
}

/// A load.
pub extern "C" fn loaded(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    accessed(vcpu, info, address, Kind::LOAD);
}

/// A store.
pub extern "C" fn stored(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    accessed(vcpu, info, address, Kind::STORE);
}

/// A load of an instruction that stores there too.
pub extern "C" fn loaded_to_store(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    accessed(vcpu, info, address, Kind::MODIFY);
}

#[inline(always)]
fn accessed(vcpu: c_uint, info: u32, address: u64, kind: Kind) {
    if let Some(current) = PLUGIN.current(vcpu)
        && current.access(address, kind)
    {
        return;
    }
    accessed_slowly(vcpu, info, address, kind);
}

#[cold]
#[inline(never)]
fn accessed_slowly(vcpu: c_uint, info: u32, address: u64, kind: Kind) {
    record(PLUGIN.state(vcpu), address, bytes(info), kind);
}

/// Bytes of an access; 0 where it is of more than any that is told.
pub fn bytes(info: u32) -> u64 {
    match (PLUGIN.api().access_size_shift)(info) {
        shift @ 0..=6 => 1 << shift,
        _ => 0,
    }
}

/// Records an access, however that is done.
pub fn record(state: &mut Vcpu, address: u64, bytes: u64, kind: Kind) {
    if !state.is_recording() {
        return;
    }
    if state.keeps_addresses() {
        if state.keep(address, bytes, kind) {
            PLUGIN.recorder().empty(state);
        }
    } else if !state.access_anywhere(address, bytes, kind) {
        PLUGIN.recorder().empty(state);
        state.access_anywhere(address, bytes, kind);
    }
}

/// As [`loaded`], where every address is kept.
pub extern "C" fn loaded_and_kept(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    record(PLUGIN.state(vcpu), address, bytes(info), Kind::LOAD);
}

/// As [`stored`], where every address is kept.
pub extern "C" fn stored_and_kept(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    record(PLUGIN.state(vcpu), address, bytes(info), Kind::STORE);
}

/// As [`loaded_to_store`], where every address is kept.
pub extern "C" fn loaded_to_store_and_kept(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    record(PLUGIN.state(vcpu), address, bytes(info), Kind::MODIFY);
}
