// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs while they are made, of data and of fetches.
//!
//! An access to the page of the one before does one addition. What begins a run notes the page, and where the counters of
//! its stream stood: the number of accesses of a run, and what they were, is a difference of counters, which is taken when
//! the buffer is emptied.

use trace::{Kind, Run};

/// Runs of a buffer: little enough to stay in the second-level cache of a core.
const RUNS: usize = 1 << 13;
/// Runs that are handed on together: they stay in the first-level cache.
const BATCH: usize = 256;
/// No page.
const NONE: u64 = u64::MAX;
/// Set in the page of a run of fetches.
const FETCH: u64 = 1 << 63;
/// The bits of a page that count: addresses of programs have at most 57.
const PAGE: u64 = (1 << 45) - 1;

/// A counter has three parts: accesses, stores among them, and runs whose first access is a store. Parts overflow into
/// each other, which differences undo; those of one run do not, because the buffer is emptied before (see
/// `vcpu::INSTRUCTIONS`).
const STORES_SHIFT: u32 = 31;
const STORES_FIRST_SHIFT: u32 = 62;
const COUNT: u64 = (1 << STORES_SHIFT) - 1;

/// A run.
#[derive(Clone, Copy)]
struct RawRun {
    page: u64,
    /// The counter of its stream at its end.
    end: u64,
}

/// Data or fetches.
#[derive(Clone, Copy)]
struct Stream {
    /// The page of its current run.
    page: u64,
    counter: u64,
    /// Where its current run is. The place 0 of the buffer is nobody's.
    index: usize,
}

const NEW: Stream = Stream { page: NONE, counter: 0, index: 0 };

/// The runs of a thread that no chunk has yet.
#[repr(C, align(64))]
pub struct Streams {
    data: Stream,
    fetch: Stream,
    /// Where the next run goes.
    next: usize,
    /// Where the buffer ends; 0 where nothing is recorded.
    limit: usize,
    runs: Box<[RawRun]>,
    /// The counters of both when the buffer was emptied.
    before: [u64; 2],
}

impl Streams {
    /// Streams that are not recorded.
    pub fn new() -> Streams {
        let runs = vec![RawRun { page: 0, end: 0 }; 1 + RUNS].into_boxed_slice();
        Streams { data: NEW, fetch: NEW, next: 1, limit: 0, runs, before: [0; 2] }
    }

    /// Most runs that [`Streams::empty`] gives.
    pub const MOST: usize = RUNS;

    /// Records from now on, or not. The buffer must be empty.
    pub fn record(&mut self, on: bool) {
        debug_assert!(self.is_empty());
        self.limit = if on { self.runs.len() } else { 0 };
        self.end_runs();
    }

    fn end_runs(&mut self) {
        self.before = [self.data.counter, self.fetch.counter];
        for stream in [&mut self.data, &mut self.fetch] {
            (stream.page, stream.index) = (NONE, 0);
        }
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.next == 1
    }

    /// Whether two more runs can be begun.
    pub fn has_room_for_two(&self) -> bool {
        self.next + 2 <= self.limit
    }

    /// A load or store in a page. `false`: nothing was done, because the buffer is full or nothing is recorded.
    #[inline(always)]
    pub fn data(&mut self, page: u64, store: bool) -> bool {
        let mut step = 1 + (u64::from(store) << STORES_SHIFT);
        if page != self.data.page {
            let Some(index) = self.begin(self.data, page) else { return false };
            (self.data.page, self.data.index) = (page, index);
            step += u64::from(store) << STORES_FIRST_SHIFT;
        }
        self.data.counter = self.data.counter.wrapping_add(step);
        true
    }

    /// Fetches in a page. `false` as for data.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        if page != self.fetch.page {
            let Some(index) = self.begin(self.fetch, page | FETCH) else { return false };
            (self.fetch.page, self.fetch.index) = (page, index);
        }
        self.fetch.counter = self.fetch.counter.wrapping_add(fetches);
        true
    }

    /// Ends the current run of a stream and begins another; gives its place, if there is room.
    #[inline(always)]
    fn begin(&mut self, stream: Stream, page: u64) -> Option<usize> {
        let index = self.next;
        if index >= self.limit {
            return None;
        }
        debug_assert!(stream.index < self.runs.len() && self.limit <= self.runs.len());
        // SAFETY: `next` is below `limit`, which is never above the length; `stream.index` was `next` once, or is 0.
        unsafe {
            self.runs.get_unchecked_mut(stream.index).end = stream.counter;
            self.runs.get_unchecked_mut(index).page = page;
        }
        self.next = index + 1;
        Some(index)
    }

    /// Ends all runs and hands them on, in the order of their first accesses.
    pub fn empty(&mut self, mut to: impl FnMut(&[Run])) {
        for stream in [&self.data, &self.fetch] {
            self.runs[stream.index].end = stream.counter;
        }
        let [mut data, mut fetch] = self.before;
        let mut batch = [Run { page: 0, kind: Kind::LOAD, accesses: 0 }; BATCH];
        for raws in self.runs[1..self.next].chunks(BATCH) {
            for (raw, run) in raws.iter().zip(&mut batch) {
                let is_fetch = raw.page & FETCH != 0;
                let difference = raw.end.wrapping_sub(if is_fetch { fetch } else { data });
                *run = raw.run(difference);
                (data, fetch) = if is_fetch { (data, raw.end) } else { (raw.end, fetch) };
            }
            to(&batch[..raws.len()]);
        }
        self.next = 1;
        self.end_runs();
    }
}

/// Kinds of data by: there are loads, there are stores, the first is a store.
const KINDS: [Kind; 8] = {
    let both = Kind::LOAD.then(Kind::STORE);
    let store_first = Kind::STORE.then(Kind::LOAD);
    [Kind::FETCH, Kind::LOAD, Kind::STORE, both, Kind::FETCH, Kind::LOAD, Kind::STORE, store_first]
};

impl RawRun {
    #[inline(always)]
    fn run(self, difference: u64) -> Run {
        let (accesses, stores) = (difference & COUNT, difference >> STORES_SHIFT & COUNT);
        let data = usize::from(stores < accesses) | usize::from(stores > 0) << 1;
        let first = (difference >> STORES_FIRST_SHIFT & 1) as usize;
        let kind = if self.page & FETCH != 0 { Kind::FETCH } else { KINDS[data | first << 2] };
        Run { page: self.page & PAGE, kind, accesses: accesses as u32 }
    }
}
