// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs while they are made, of data and of fetches.
//!
//! An access to the page of the one before does one addition. What begins a run notes the page, and where the counter of
//! its stream stands: the number of accesses of a run, and what they were, is a difference of counters, which is taken when
//! the buffer is emptied.
//!
//! The buffer is a part of the thread's log, which holds what is not in the file yet: it moves on when it is emptied, and
//! back to the beginning when a block is in the file. The log is shared memory where `pagelab record` gave a directory for
//! it, and survives QEMU there.

use std::path::Path;
use std::sync::atomic::{Ordering, compiler_fence};

use trace::Run;
use trace::log::{
    BASES, FETCH, LOG, LOG_HEAD_BYTES, LogHead, NO_PAGE, RawRun, STORES_FIRST_SHIFT, STORES_SHIFT, Stream,
};

use crate::known::{Program, Step};
use crate::guest_memory::regions::PAGE_BYTES;
use crate::shared::Mapping;
use crate::words::MOST_BYTES;

/// Runs of a buffer: little enough to stay in the second-level cache of a core.
const RUNS: usize = 1 << 13;
/// Fewest runs of a log, whatever is asked for.
const FEWEST: usize = 1 << 8;
/// The last place in a page where an access of any size lies in the page.
const LAST_PLACE: u64 = PAGE_BYTES - MOST_BYTES;

/// Bytes of a log of so many runs.
fn bytes(runs: usize) -> usize {
    LOG_HEAD_BYTES + (1 + runs) * size_of::<RawRun>()
}

/// The runs of a thread that are not in the file yet.
pub struct Streams {
    /// At the beginning of the log; behind it stand runs, `places` of them, of which the first is nobody's.
    head: *mut Current,
    places: usize,
    /// Most runs that the log may have.
    most: usize,
    /// Most runs of the buffer: no more than half of the log.
    buffer: usize,
    /// Where the buffer begins.
    start: usize,
    recording: bool,
    log: Mapping,
}

impl Streams {
    /// Streams that are not recorded, with a log of `runs` runs.
    pub fn new(thread: u32, runs: usize, log: Option<&Path>) -> Streams {
        let most = runs.max(FEWEST);
        let log = Mapping::new(bytes(most), bytes(most.min(2 * RUNS)), log);
        let head = log.begin().cast::<Current>();
        let new = LogHead {
            data: Stream::NEW,
            fetch: Stream::NEW,
            next: 1,
            limit: 0,
            instructions: 0,
            attention: 0,
            seen: 0,
            first: 0,
            thread: u64::from(thread),
            magic: LOG,
            bases: [0; BASES],
        };
        // SAFETY: the mapping is new, long enough for the head, and pages are aligned for it.
        unsafe { head.write(Current(new)) };
        let mut streams = Streams { head, places: 0, most, buffer: 0, start: 1, recording: false, log };
        streams.count_places();
        streams
    }

    /// Most runs that the log may have from now on, which must be empty: what is above that is given back.
    pub fn limit(&mut self, runs: usize) {
        debug_assert!(self.is_empty() && self.start == 1);
        self.most = runs.clamp(FEWEST, self.log.bytes() / size_of::<RawRun>());
        self.log.use_only(bytes(self.most));
        self.count_places();
        self.end_runs();
    }

    /// Runs in the log.
    pub fn logged(&self) -> usize {
        self.head().next as usize - 1
    }

    /// Most runs that the log may have.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Most runs of the buffer.
    pub fn buffer(&self) -> usize {
        self.buffer
    }

    /// Most runs that [`Streams::empty`] gives.
    pub const MOST: usize = RUNS;

    /// Whether the log survives this process.
    pub fn survives(&self) -> bool {
        self.log.survives()
    }

    fn count_places(&mut self) {
        self.places = (self.log.usable_bytes() - LOG_HEAD_BYTES) / size_of::<RawRun>();
        self.buffer = RUNS.min((self.places - 1) / 2);
    }

    #[inline(always)]
    fn head(&self) -> &LogHead {
        // SAFETY: as in `new`; the mapping lives as long as this, and only this thread writes there.
        unsafe { &(*self.head).0 }
    }

    #[inline(always)]
    fn head_mut(&mut self) -> &mut LogHead {
        &mut self.current().0
    }

    /// What callbacks use.
    #[inline(always)]
    pub fn current(&mut self) -> &mut Current {
        // SAFETY: as in `head`.
        unsafe { &mut *self.head }
    }

    fn runs(&self) -> *mut RawRun {
        // SAFETY: the mapping is longer than the head.
        unsafe { self.head.add(1).cast() }
    }

    /// Instructions so far.
    #[inline(always)]
    pub fn instructions(&self) -> u64 {
        self.head().instructions
    }

    /// Instructions at which there is something else to do.
    pub fn attention(&self) -> u64 {
        self.head().attention
    }

    /// Sets that number.
    pub fn set_attention(&mut self, instructions: u64) {
        self.head_mut().attention = instructions;
    }

    /// How many events of all threads this one has seen.
    pub fn seen(&self) -> u64 {
        self.head().seen
    }

    /// Sets that number.
    pub fn set_seen(&mut self, events: u64) {
        self.head_mut().seen = events;
    }

    /// Records from now on, or not. The buffer must be empty.
    pub fn record(&mut self, on: bool) {
        debug_assert!(self.is_empty());
        self.recording = on;
        self.end_runs();
    }

    fn end_runs(&mut self) {
        self.start = self.head().next as usize;
        if self.start + self.buffer > self.places && self.places <= self.most && self.log.use_more() {
            self.count_places();
        }
        let limit = if self.recording { self.places.min(self.start + self.buffer) } else { 0 };
        let head = self.head_mut();
        (head.data.page, head.fetch.page) = (NO_PAGE, NO_PAGE);
        head.limit = limit as u64;
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.head().next as usize == self.start
    }

    /// Whether the log has room for a full buffer more.
    pub fn has_room(&self) -> bool {
        self.start + self.buffer <= self.places
    }

    /// An access of the kernel, after the buffer was emptied.
    pub fn kernel(&mut self, page: u64, store: bool) {
        debug_assert!(self.is_empty() && self.start < self.places);
        // SAFETY: there is room for it: the log is rewound as long as there is none for a full buffer.
        unsafe { *self.runs().add(self.start) = RawRun::of_kernel(page, store) };
        compiler_fence(Ordering::Release);
        self.head_mut().next += 1;
        self.end_runs();
    }

    /// Ends all runs and leaves them in the log. Gives how many the buffer had.
    pub fn end(&mut self) -> usize {
        let runs = self.raws(self.start).len();
        self.end_runs();
        runs
    }

    /// All runs of the log, in the order of their first accesses. The buffer must be empty.
    pub fn all(&self) -> Vec<Run> {
        debug_assert!(self.is_empty());
        let mut ends = [self.head().data.counter, self.head().fetch.counter];
        let mut runs: Vec<Run> = self.raws(1).iter().rev().map(|raw| raw.of_any(&mut ends)).collect();
        runs.reverse();
        runs
    }

    /// The runs from a place on.
    fn raws(&self, from: usize) -> &[RawRun] {
        // SAFETY: these places were filled by `begin` and `kernel`, and nobody changes them while this lives.
        unsafe { std::slice::from_raw_parts(self.runs().add(from), self.head().next as usize - from) }
    }

    /// Ends all runs and hands those of the buffer on, in the order of their first accesses, with the counters of data and
    /// fetches where the last of them end. Gives how many there are.
    pub fn empty(&mut self, to: impl FnOnce(&[RawRun], [u64; 2])) -> usize {
        to(self.raws(self.start), [self.head().data.counter, self.head().fetch.counter]);
        self.end()
    }

    /// Forgets the runs of the log: they are in the file. `next` is the number of the next run. The buffer must be empty.
    pub fn rewind(&mut self, next: u64) {
        debug_assert!(self.is_empty());
        self.head_mut().next = 1;
        compiler_fence(Ordering::Release);
        self.end_runs();
        self.head_mut().first = next;
        // Before the next run.
        compiler_fence(Ordering::Release);
    }

    /// Leaves the log to the process that this one was forked from.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    Load,
    Store,
    /// The load of an instruction that stores to the same place: it asks for permission to store.
    Modify,
}

impl Transfer {
    /// What is added to the counter of data.
    #[inline(always)]
    pub const fn counter(self) -> u64 {
        1 + ((matches!(self, Transfer::Store) as u64) << STORES_SHIFT)
    }

    /// What is added besides where it begins a run.
    #[inline(always)]
    pub const fn begin(self) -> u64 {
        (!matches!(self, Transfer::Load) as u64) << STORES_FIRST_SHIFT
    }
}

/// What a thread does now, and how much of it is not in the file yet: all that callbacks use.
#[repr(transparent)]
pub struct Current(LogHead);

impl Current {
    /// Counts instructions.
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.0.instructions += instructions;
    }

    /// Whether there is something else to do before more instructions are counted, where there were `events` events.
    #[inline(always)]
    pub fn needs_attention(&self, events: u64) -> bool {
        self.0.instructions >= self.0.attention || self.0.seen != events
    }

    /// Whether two more runs can be begun.
    pub fn has_room_for_two(&self) -> bool {
        self.0.next + 2 <= self.0.limit
    }

    /// A load or store. `false`: nothing was done, because it may cross the end of its page, the buffer is full, or nothing
    /// is recorded.
    #[inline(always)]
    pub fn access(&mut self, address: u64, transfer: Transfer) -> bool {
        let data = &mut self.0.data;
        if address.wrapping_sub(data.page) <= LAST_PLACE {
            data.counter = data.counter.wrapping_add(transfer.counter());
            return true;
        }
        let page = page_of(address);
        address - page <= LAST_PLACE && self.data(page, transfer)
    }

    /// The access to `address` and those that are derived from it and earlier ones. `false`: nothing was done, because
    /// there may be no room.
    #[inline(always)]
    pub fn follow(&mut self, address: u64, program: &Program) -> bool {
        self.0.bases[program.slot % BASES] = address;
        if self.0.next + program.most_runs > self.0.limit {
            return false;
        }
        let mut steps = &*program.steps;
        while let [step, others @ ..] = steps {
            if !self.step(self.base_of(step), step) {
                self.each_of(steps);
                return true;
            }
            steps = others;
        }
        true
    }

    /// The address that a step is derived from.
    #[inline(always)]
    fn base_of(&self, step: &Step) -> u64 {
        // There are no other slots: the remainder spares a look.
        self.0.bases[usize::from(step.slot) % BASES]
    }

    /// A step from an address, if all of it lies in one page. `false`: nothing was done, because it does not, or there is
    /// no room.
    #[inline(always)]
    pub fn step(&mut self, address: u64, step: &Step) -> bool {
        let lowest = address.wrapping_add_signed(i64::from(step.low));
        let data = &mut self.0.data;
        let mut counter = step.counter;
        if lowest.wrapping_sub(data.page) > u64::from(step.last_place) {
            let (page, begin) = (page_of(lowest), data.counter);
            if lowest - page > u64::from(step.last_place) || !self.begin(page, begin) {
                return false;
            }
            self.0.data.page = page;
            counter += step.begin;
        }
        let data = &mut self.0.data;
        data.counter = data.counter.wrapping_add(counter);
        true
    }

    /// Steps whose accesses may lie in two pages. There must be room.
    #[cold]
    #[inline(never)]
    fn each_of(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.each(self.base_of(step), step));
    }

    /// As [`Current::step`], wherever the accesses lie. `false`: nothing was done, because there may be no room.
    pub fn step_anywhere(&mut self, address: u64, step: &Step) -> bool {
        let is_room = self.0.next + step.most_runs() <= self.0.limit;
        if is_room {
            self.each(address, step);
        }
        is_room
    }

    /// The accesses of a step, each on its own. There must be room.
    fn each(&mut self, address: u64, step: &Step) {
        for access in &step.accesses {
            let address = address.wrapping_add_signed(i64::from(access.at));
            let (first, last) = (page_of(address), page_of(address.wrapping_add(u64::from(access.bytes) - 1)));
            let is_room = self.data(first, access.transfer) && (last == first || self.data(last, access.transfer));
            debug_assert!(is_room);
        }
    }

    /// A load or store in a page, which is given by its address. `false`: nothing was done, because the buffer is full or
    /// nothing is recorded.
    #[inline(always)]
    pub fn data(&mut self, page: u64, transfer: Transfer) -> bool {
        let mut step = transfer.counter();
        let head = &self.0;
        if page != head.data.page {
            if !self.begin(page, head.data.counter) {
                return false;
            }
            self.0.data.page = page;
            step += transfer.begin();
        }
        let data = &mut self.0.data;
        data.counter = data.counter.wrapping_add(step);
        true
    }

    /// Fetches in a page. `false` as for data.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        let head = &self.0;
        if page != head.fetch.page {
            if !self.begin(page | FETCH, head.fetch.counter) {
                return false;
            }
            self.0.fetch.page = page;
        }
        let fetch = &mut self.0.fetch;
        fetch.counter = fetch.counter.wrapping_add(fetches);
        true
    }

    /// Begins a run, if there is room; the one before it in its stream ends.
    #[inline(always)]
    fn begin(&mut self, page: u64, begin: u64) -> bool {
        let place = self.0.next;
        if place >= self.0.limit {
            return false;
        }
        // SAFETY: `next` is below `limit`, which is never above `places`.
        unsafe { *std::ptr::from_mut(self).add(1).cast::<RawRun>().add(place as usize) = RawRun { page, begin } };
        // Whoever reads the log after the end of this process relies on the order of these stores (`trace::log`).
        compiler_fence(Ordering::Release);
        self.0.next = place + 1;
        compiler_fence(Ordering::Release);
        true
    }
}

/// The address of the page that an address is in.
#[inline(always)]
pub fn page_of(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{Access, Address, Does, Hook, Symbol, hooks};

    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 1u64;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    fn access(next: &mut impl FnMut(u64) -> u64) -> Access {
        let symbol = Symbol { base: 1 + next(3) as u32, index: 0, scale: 0, segment: 0 };
        let address = Address { symbol, displacement: next(600).wrapping_sub(300) };
        let (loads, stores) = [(true, false), (true, false), (false, true), (true, true)][next(4) as usize];
        Access { address, bytes: 1 << next(4), loads, stores }
    }

    fn streams() -> Streams {
        let mut streams = Streams::new(0, 1 << 12, None);
        streams.record(true);
        streams
    }

    /// An access as QEMU tells it.
    fn tell(streams: &mut Streams, address: u64, bytes: u8, transfer: Transfer) {
        let (first, last) = (page_of(address), page_of(address + u64::from(bytes) - 1));
        assert!(streams.current().data(first, transfer));
        assert!(last == first || streams.current().data(last, transfer));
    }

    /// The callback of an access that stands for others.
    fn begin(streams: &mut Streams, address: u64, program: &Program) -> bool {
        let current = streams.current();
        match program.only_step() {
            Some(step) => current.step(address, step) || current.step_anywhere(address, step),
            None => current.follow(address, program),
        }
    }

    #[test]
    fn what_is_derived_is_what_each_access_would_be() {
        let mut next = numbers();
        for _ in 0..500 {
            let block: Vec<Access> = (0..1 + next(12)).map(|_| access(&mut next)).collect();
            let does: Vec<Does> = block.iter().copied().map(Does::Access).collect();
            let hooks = hooks(&does, false);
            let (mut derived, mut each) = (streams(), streams());
            for _ in 0..4 {
                // In few pages, and often at their ends.
                let bases =
                    [(); 3].map(|()| (16 + next(3)) * PAGE_BYTES + [0, 1000, 3900][next(3) as usize] + next(200));
                for (access, hook) in block.iter().zip(&hooks) {
                    let base = bases[access.address.symbol.base as usize - 1];
                    let address = base.wrapping_add(access.address.displacement);
                    for transfer in access.transfers() {
                        tell(&mut each, address, access.bytes, transfer);
                        match hook {
                            Hook::Nothing => {}
                            Hook::First(program) => assert!(begin(&mut derived, address, program)),
                            Hook::One { .. } | Hook::Each | Hook::Modify => {
                                tell(&mut derived, address, access.bytes, transfer);
                            }
                        }
                    }
                }
            }
            each.end();
            derived.end();
            assert_eq!(derived.all(), each.all(), "{block:?} {hooks:?}");
        }
    }

    #[test]
    fn without_room_nothing_is_done() {
        let load = |displacement| {
            let symbol = Symbol { base: 1, index: 0, scale: 0, segment: 0 };
            Does::Access(Access { address: Address { symbol, displacement }, bytes: 8, loads: true, stores: false })
        };
        let Hook::First(program) = hooks(&[load(0), load(8)], false)[0] else { panic!() };
        let step = program.only_step().unwrap();
        let mut streams = Streams::new(0, 1 << 12, None);
        let anyhow = |streams: &mut Streams| {
            let current = streams.current();
            // The first is in one page, the second is not.
            [current.follow(1 << 40, program), current.step_anywhere((1 << 40) - 12, step)]
        };
        assert_eq!(anyhow(&mut streams), [false; 2], "it is not recorded");
        streams.record(true);
        let buffer = streams.buffer() as u64;
        assert!((0..buffer - 3).all(|page| streams.current().data(page << 12, Transfer::Load)));
        assert_eq!(anyhow(&mut streams), [false; 2], "there is room for three runs");
        assert_eq!(streams.logged() as u64, buffer - 3);
        streams.end();
        assert_eq!(anyhow(&mut streams), [true; 2]);
        assert_eq!(streams.end(), 3);
    }
}
