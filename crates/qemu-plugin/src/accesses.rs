// SPDX-License-Identifier: GPL-2.0-or-later
//! The callbacks for instructions and accesses: the hot path.
//!
//! Code that is seldom needed is in separate functions, so that the frequent callbacks save no registers.

use std::ffi::c_uint;
use std::sync::atomic::Ordering;

use trace::{Call, Kind, PAGE_SHIFT, page_of};

use crate::plugin::PLUGIN;
use crate::vcpu::{Attention, Vcpu};

/// A number of fetches from one page by a block. It is passed as the pointer-sized user data of a callback: the page's address,
/// with the number of fetches in the low bits, and one bit that is set if the first fetch is the rest of an instruction that
/// begins in the page before.
#[derive(Clone, Copy)]
pub struct Fetches(usize);

const CONTINUES: usize = 1 << 11;

impl Fetches {
    /// One instruction that begins in the page.
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

    /// The value to pass to QEMU as user data.
    pub fn to_data(self) -> usize {
        self.0
    }

    fn new(page: u64, continues: bool) -> Fetches {
        Fetches((page << PAGE_SHIFT) as usize | if continues { CONTINUES + 1 } else { 0 })
    }

    /// The user data for `instructions` instructions that begin in the page.
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

/// One instruction that reports itself. Like [`Fetches`] it is passed as user data: its address, with its length in the low bits.
#[derive(Clone, Copy)]
pub struct Fetch(usize);

/// Bits for the length of an instruction; none is longer than 15 bytes.
const BYTES_BITS: u32 = 4;
const BYTES: usize = (1 << BYTES_BITS) - 1;

impl Fetch {
    /// The fetch of an instruction of `bytes` bytes.
    pub fn new(address: u64, bytes: u64) -> Fetch {
        Fetch((address << BYTES_BITS) as usize | bytes as usize & BYTES)
    }

    /// The value to pass to QEMU as user data.
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
    PLUGIN.recorder().touch(state, fetches.page(), 1, Kind::FETCH);
    if state.is_recording() && !state.current().fetch_anyway(fetches.page(), fetches.accesses()) {
        empty(state);
        state.current().fetch_anyway(fetches.page(), fetches.accesses());
    }
    state.current().count(fetches.instructions());
}

pub extern "C" fn instruction_begins(vcpu: c_uint, data: usize) {
    let (state, fetch) = (PLUGIN.state(vcpu), Fetch(data));
    attend_if_needed(state);
    state.current().count(1);
    record(state, fetch.address(), fetch.bytes(), Kind::FETCH);
}

/// Does the work that must come before more instructions are counted.
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
            Attention::WindowStart => recorder.note(state, Call::Window { instructions: state.instructions() }, 0),
            Attention::FirstInstruction => PLUGIN.processors.begins(),
            Attention::CallReturned => recorder.continued(state),
            Attention::WindowEnd => recorder.write(state),
            Attention::LastWindowEnd => {
                recorder.write(state);
                if PLUGIN.processors.complete() && recorder.plan.header.system {
                    recorder.signal_complete();
                }
            }
            Attention::BlockDue => empty(state),
        }
    }
}

/// Empties a thread's buffers. If this wrote a block, it also writes the data of threads that have been in a system call for
/// long, because a reader of the file cannot continue without it.
fn empty(state: &mut Vcpu) {
    let recorder = PLUGIN.recorder();
    if recorder.empty(state) {
        PLUGIN.vcpus.while_parked(|other| recorder.write(other));
    }
}

/// A load or store.
pub extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    if let Some(current) = PLUGIN.current(vcpu)
        && let Some(kind) = PLUGIN.access_info_cache.known(info)
        && current.access(address, kind)
    {
        return;
    }
    accessed_slowly(vcpu, info, address);
}

#[cold]
#[inline(never)]
fn accessed_slowly(vcpu: c_uint, info: u32, address: u64) {
    if let Some(current) = PLUGIN.current(vcpu)
        && let Some(kind) = PLUGIN.access_info_cache.known(info)
        && current.access_again(address, kind)
    {
        return;
    }
    let (kind, bytes) = PLUGIN.access_info_cache.ask(PLUGIN.api(), info);
    record(PLUGIN.state(vcpu), address, bytes, kind);
}

/// An access of which it is known whether it is a load or a store.
pub extern "C" fn accessed_once<const STORE: bool>(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    if let Some(current) = PLUGIN.current(vcpu)
        && current.access(address, if STORE { Kind::STORE } else { Kind::LOAD })
    {
        return;
    }
    accessed_slowly(vcpu, info, address);
}

/// A load or store of an instruction that stores to the address that it loads from.
pub extern "C" fn accessed_to_modify(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    if let Some(current) = PLUGIN.current(vcpu)
        && let Some(kind) = PLUGIN.access_info_cache.known(info)
        && current.access(address, modifying(kind))
    {
        return;
    }
    accessed_to_modify_slowly(vcpu, info, address);
}

#[cold]
#[inline(never)]
fn accessed_to_modify_slowly(vcpu: c_uint, info: u32, address: u64) {
    if let Some(current) = PLUGIN.current(vcpu)
        && let Some(kind) = PLUGIN.access_info_cache.known(info)
        && current.access_again(address, modifying(kind))
    {
        return;
    }
    let (kind, bytes) = PLUGIN.access_info_cache.ask(PLUGIN.api(), info);
    record(PLUGIN.state(vcpu), address, bytes, modifying(kind));
}

/// The kind of an access whose instruction stores to the address that it loads from.
#[inline(always)]
fn modifying(kind: Kind) -> Kind {
    if kind == Kind::LOAD { Kind::MODIFY } else { kind }
}

/// A load or store whose address is kept. `modifies` is not 0 where its instruction stores to the address that it loads from.
pub extern "C" fn accessed_and_kept(vcpu: c_uint, info: u32, address: u64, modifies: usize) {
    let (kind, bytes) = PLUGIN.access_info_cache.ask(PLUGIN.api(), info);
    record(PLUGIN.state(vcpu), address, bytes, if modifies == 0 { kind } else { modifying(kind) });
}

/// Records an access of `bytes` bytes (0: unknown) on the slow path.
pub fn record(state: &mut Vcpu, address: u64, bytes: u64, kind: Kind) {
    if !state.is_recording() {
        return;
    }
    PLUGIN.recorder().touch(state, address, bytes, kind);
    if state.keeps_addresses() {
        if state.keep(address, bytes, kind) {
            empty(state);
        }
    } else if !state.access_anywhere(address, bytes, kind) {
        empty(state);
        state.access_anywhere(address, bytes, kind);
    }
}
