// SPDX-License-Identifier: GPL-2.0-or-later
//! What QEMU calls for instructions and for accesses: the hot path.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU8, Ordering};

use trace::{Call, PAGE_SHIFT};

use crate::process::{api, recorder};
use crate::known::{Program, Step};
use crate::processors;
use crate::recorder::EVENTS;
use crate::streams::{Transfer, page_of};
use crate::vcpu::{Attention, Vcpu};
use crate::vcpus::{current, state};
use crate::words::Marks;

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

pub extern "C" fn fetched(vcpu: c_uint, data: usize) {
    let fetches = Fetches(data);
    if let Some(current) = current(vcpu)
        && !current.needs_attention(EVENTS.load(Ordering::Relaxed))
        && current.fetch(fetches.page(), fetches.accesses())
    {
        return current.count(fetches.instructions());
    }
    fetched_slowly(vcpu, data);
}

/// What is seldom needed stands apart, so that the callbacks above it save no registers.
#[cold]
#[inline(never)]
extern "C" fn fetched_slowly(vcpu: c_uint, data: usize) {
    let (state, fetches) = (state(vcpu), Fetches(data));
    attend_if_needed(state);
    if state.is_recording() && !state.fetch(fetches.page(), fetches.accesses()) {
        recorder().empty(state);
        state.fetch(fetches.page(), fetches.accesses());
    }
    state.count(fetches.instructions());
}

#[inline(always)]
fn needs_attention(state: &Vcpu) -> bool {
    state.needs_attention() || state.seen() != EVENTS.load(Ordering::Relaxed)
}

pub extern "C" fn instruction_begins(vcpu: c_uint, data: usize) {
    let state = state(vcpu);
    attend_if_needed(state);
    state.count(1);
    let bytes = data as u64 & 15;
    keep(state, data as u64 >> 4, bytes, Marks::fetch(bytes));
}

fn keep(state: &mut Vcpu, address: u64, bytes: u64, marks: Marks) {
    if state.is_recording() && state.keep(address, bytes, marks) {
        recorder().empty(state);
    }
}

/// Does what has to be done before more instructions are counted.
#[inline(always)]
pub fn attend_if_needed(state: &mut Vcpu) {
    if needs_attention(state) {
        attend(state);
    }
}

#[cold]
fn attend(state: &mut Vcpu) {
    let recorder = recorder();
    if state.seen() != EVENTS.load(Ordering::Relaxed) {
        recorder.note_seen(state);
    }
    while state.needs_attention() {
        match state.attend() {
            Attention::Opened => recorder.note(state, Call::Window { instructions: state.instructions() }, 0),
            Attention::Begun => processors::begins(),
            Attention::Closed => recorder.write(state),
            Attention::Complete => {
                recorder.write(state);
                processors::is_complete(recorder);
            }
            Attention::Empty => recorder.empty(state),
        }
    }
}

/// What QEMU's descriptions of accesses mean, as far as they have occurred: [`Marks`] as a byte, 0 where it is not known.
/// A description has a few bits in all versions of QEMU, and asking costs as much as recording.
static MARKS: [AtomicU8; 1 << 18] = [const { AtomicU8::new(0) }; 1 << 18];

#[inline(always)]
fn known_marks(info: u32) -> Option<Marks> {
    MARKS.get(info as usize).and_then(|known| Marks::from_byte(known.load(Ordering::Relaxed)))
}

pub fn marks(info: u32) -> Marks {
    known_marks(info).unwrap_or_else(|| {
        let api = api();
        let marks = Marks::new((api.access_size_shift)(info), (api.access_is_store)(info));
        if let Some(place) = MARKS.get(info as usize) {
            place.store(marks.to_byte(), Ordering::Relaxed);
        }
        marks
    })
}

pub extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, data: usize) {
    if let Some(current) = current(vcpu)
        && let Some(marks) = known_marks(info)
        && current.access(address, marks.transfer())
    {
        return;
    }
    accessed_slowly(vcpu, info, address, data);
}

/// An access of which it is known what it does.
pub extern "C" fn accessed_once<const STORE: bool>(vcpu: c_uint, info: u32, address: u64, data: usize) {
    if let Some(current) = current(vcpu)
        && current.access(address, if STORE { Transfer::Store } else { Transfer::Load })
    {
        return;
    }
    accessed_slowly(vcpu, info, address, data);
}

/// An access of an instruction that stores to where it loads from.
pub extern "C" fn accessed_to_modify(vcpu: c_uint, info: u32, address: u64, data: usize) {
    if let Some(current) = current(vcpu)
        && let Some(marks) = known_marks(info)
        && current.access(address, marks.modifying().transfer())
    {
        return;
    }
    accessed_to_modify_slowly(vcpu, info, address, data);
}

#[cold]
#[inline(never)]
extern "C" fn accessed_to_modify_slowly(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    let (state, marks) = (state(vcpu), marks(info).modifying());
    record(state, address, marks);
}

/// An access that stands for others near it.
pub extern "C" fn accessed_with_neighbours(vcpu: c_uint, info: u32, address: u64, data: usize) {
    // SAFETY: as in `accessed_with_others`.
    let step = unsafe { &*(data as *const Step) };
    if let Some(current) = current(vcpu)
        && current.step(address, step)
    {
        return;
    }
    accessed_with_neighbours_slowly(vcpu, info, address, data);
}

#[cold]
#[inline(never)]
extern "C" fn accessed_with_neighbours_slowly(vcpu: c_uint, _info: u32, address: u64, data: usize) {
    // SAFETY: as in `accessed_with_others`.
    let (state, step) = (state(vcpu), unsafe { &*(data as *const Step) });
    if state.is_recording() && !state.current().step_anywhere(address, step) {
        recorder().empty(state);
        state.current().step_anywhere(address, step);
    }
}

/// An access that stands for others which are not all near it, or from whose address later ones are derived.
pub extern "C" fn accessed_with_others(vcpu: c_uint, info: u32, address: u64, data: usize) {
    // SAFETY: `program::translated` handed this over, and programs are never freed.
    let program = unsafe { &*(data as *const Program) };
    if let Some(current) = current(vcpu)
        && current.follow(address, program)
    {
        return;
    }
    accessed_with_others_slowly(vcpu, info, address, data);
}

#[cold]
#[inline(never)]
extern "C" fn accessed_with_others_slowly(vcpu: c_uint, _info: u32, address: u64, data: usize) {
    // SAFETY: as in `accessed_with_others`.
    let (state, program) = (state(vcpu), unsafe { &*(data as *const Program) });
    if state.is_recording() && !state.follow(address, program) {
        recorder().empty(state);
        state.follow(address, program);
    }
}

#[cold]
#[inline(never)]
extern "C" fn accessed_slowly(vcpu: c_uint, info: u32, address: u64, _data: usize) {
    let (state, marks) = (state(vcpu), marks(info));
    record(state, address, marks);
}

/// Records a load or store, however that is done.
pub fn record(state: &mut Vcpu, address: u64, marks: Marks) {
    if state.keeps_addresses() {
        keep(state, address, marks.bytes(), marks);
    } else if state.is_recording() && !state.access_anywhere(address, marks) {
        recorder().empty(state);
        state.access_anywhere(address, marks);
    }
}

/// An access whose address is kept; `modifies` is not 0 where its instruction stores to where it loads from.
pub extern "C" fn accessed_and_kept(vcpu: c_uint, info: u32, address: u64, modifies: usize) {
    let marks = marks(info);
    record(state(vcpu), address, if modifies == 0 { marks } else { marks.modifying() });
}
