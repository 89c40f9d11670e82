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
use trace::log::{FETCH, LOG, LOG_HEAD_BYTES, LogHead, NO_PAGE, RawRun, STORES_FIRST_SHIFT, STORES_SHIFT, Stream};

use crate::regions::PAGE_BYTES;
use crate::shared::Mapping;
use crate::words::MOST_BYTES;

/// Runs of a buffer: little enough to stay in the second-level cache of a core.
const RUNS: usize = 1 << 13;
/// Fewest runs of a log, whatever is asked for.
const FEWEST: usize = 1 << 8;
/// Runs that are handed on together: they stay in the first-level cache.
const BATCH: usize = 256;
/// The last place in a page where an access of any size lies in the page.
const LAST_PLACE: u64 = PAGE_BYTES - MOST_BYTES;

/// Bytes of a log of so many runs.
fn bytes(runs: usize) -> usize {
    LOG_HEAD_BYTES + (1 + runs) * size_of::<RawRun>()
}

/// The runs of a thread that are not in the file yet.
pub struct Streams {
    /// At the beginning of the log.
    head: *mut LogHead,
    /// Behind it: `places` of them, of which the first is nobody's.
    runs: *mut RawRun,
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
        let head = log.begin().cast::<LogHead>();
        let new = LogHead {
            data: Stream::NEW,
            fetch: Stream::NEW,
            next: 1,
            limit: 0,
            instructions: 0,
            first: 0,
            thread: u64::from(thread),
            magic: LOG,
        };
        // SAFETY: the mapping is new, long enough for the head, and pages are aligned for it.
        let runs = unsafe {
            head.write(new);
            head.add(1).cast::<RawRun>()
        };
        let mut streams = Streams { head, runs, places: 0, most, buffer: 0, start: 1, recording: false, log };
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
        unsafe { &*self.head }
    }

    #[inline(always)]
    fn head_mut(&mut self) -> &mut LogHead {
        // SAFETY: as in `head`.
        unsafe { &mut *self.head }
    }

    /// Instructions so far.
    #[inline(always)]
    pub fn instructions(&self) -> u64 {
        self.head().instructions
    }

    /// Counts instructions.
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.head_mut().instructions += instructions;
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

    /// Whether two more runs can be begun.
    pub fn has_room_for_two(&self) -> bool {
        self.head().next + 2 <= self.head().limit
    }

    /// Whether the log has room for a full buffer more.
    pub fn has_room(&self) -> bool {
        self.start + self.buffer <= self.places
    }

    /// A load or store. `false`: nothing was done, because it may cross the end of its page, the buffer is full, or nothing
    /// is recorded.
    #[inline(always)]
    pub fn access(&mut self, address: u64, store: bool) -> bool {
        let data = &mut self.head_mut().data;
        if address.wrapping_sub(data.page) <= LAST_PLACE {
            data.counter = data.counter.wrapping_add(step(store));
            return true;
        }
        let page = page_of(address);
        address - page <= LAST_PLACE && self.data(page, store)
    }

    /// A load or store in a page, which is given by its address. `false`: nothing was done, because the buffer is full or
    /// nothing is recorded.
    #[inline(always)]
    pub fn data(&mut self, page: u64, store: bool) -> bool {
        let mut step = step(store);
        let head = self.head();
        if page != head.data.page {
            if !self.begin(page, head.data.counter) {
                return false;
            }
            self.head_mut().data.page = page;
            step += u64::from(store) << STORES_FIRST_SHIFT;
        }
        let data = &mut self.head_mut().data;
        data.counter = data.counter.wrapping_add(step);
        true
    }

    /// Fetches in a page. `false` as for data.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        let head = self.head();
        if page != head.fetch.page {
            if !self.begin(page | FETCH, head.fetch.counter) {
                return false;
            }
            self.head_mut().fetch.page = page;
        }
        let fetch = &mut self.head_mut().fetch;
        fetch.counter = fetch.counter.wrapping_add(fetches);
        true
    }

    /// Begins a run, if there is room; the one before it in its stream ends.
    #[inline(always)]
    fn begin(&mut self, page: u64, begin: u64) -> bool {
        let place = self.head().next;
        if place >= self.head().limit {
            return false;
        }
        debug_assert!(self.head().limit as usize <= self.places);
        // SAFETY: `next` is below `limit`, which is never above `places`.
        unsafe { *self.runs.add(place as usize) = RawRun { page, begin } };
        // Whoever reads the log after the end of this process relies on the order of these stores (`trace::log`).
        compiler_fence(Ordering::Release);
        self.head_mut().next = place + 1;
        compiler_fence(Ordering::Release);
        true
    }

    /// An access of the kernel, after the buffer was emptied.
    pub fn kernel(&mut self, page: u64, store: bool) {
        debug_assert!(self.is_empty() && self.start < self.places);
        // SAFETY: there is room for it: the log is rewound as long as there is none for a full buffer.
        unsafe { *self.runs.add(self.start) = RawRun::of_kernel(page, store) };
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
        unsafe { std::slice::from_raw_parts(self.runs.add(from), self.head().next as usize - from) }
    }

    /// Ends all runs and hands those of the buffer on, in the order of their first accesses. Gives how many there are.
    pub fn empty(&mut self, mut to: impl FnMut(&[Run])) -> usize {
        let raws = self.raws(self.start);
        // Runs end where the next of their stream begins, which may be beyond their batch.
        let mut ends = [[self.head().data.counter, self.head().fetch.counter]; RUNS.div_ceil(BATCH)];
        for (batch, raws) in raws.chunks(BATCH).enumerate().skip(1).rev() {
            ends[batch - 1] = begins(raws, ends[batch]);
        }
        let mut runs = [Run { page: 0, kind: trace::Kind::LOAD, accesses: 0 }; BATCH];
        for (raws, ends) in raws.chunks(BATCH).zip(&mut ends) {
            for (raw, run) in raws.iter().zip(&mut runs).rev() {
                *run = raw.run(ends);
            }
            to(&runs[..raws.len()]);
        }
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

/// What a load or store adds to the counter of its stream.
#[inline(always)]
fn step(store: bool) -> u64 {
    1 + (u64::from(store) << STORES_SHIFT)
}

/// The address of the page that an address is in.
#[inline(always)]
pub fn page_of(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

/// The counters of data and fetches where the first runs of either begin; `ends` where there are none.
fn begins(raws: &[RawRun], ends: [u64; 2]) -> [u64; 2] {
    [0, FETCH].map(|mark| {
        let first = raws.iter().find(|raw| raw.page & FETCH == mark);
        first.map_or(ends[mark as usize], |raw| raw.begin)
    })
}
