// SPDX-License-Identifier: GPL-2.0-or-later
//! The current state of a thread: the part of a vCPU that the frequent callbacks use.

use trace::{Access, Kind, PAGE_SHIFT, Runs, page_of};

use crate::touched::Touched;

/// The last offset at which an access of any size is inside the page.
const LAST_PLACE: u64 = (1 << PAGE_SHIFT) - Access::MAX_BYTES as u64;

/// The current state of a thread: everything that the callbacks use.
pub struct Current {
    pub(super) runs: Runs,
    /// Instructions that were executed.
    pub(super) instructions: u64,
    /// Instruction count at which other work is due.
    pub(super) attention: u64,
    /// How many events of all threads this thread has seen.
    pub(super) seen: u64,
    /// Pages whose first touches were recorded; `None` where the order of several threads or processes does not matter.
    pub(super) touched: Option<Box<Touched>>,
}

impl Current {
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.instructions += instructions;
    }

    /// Whether other work is due before more instructions are counted, given the number of `events` so far.
    #[inline(always)]
    pub fn needs_attention(&self, events: u64) -> bool {
        self.instructions >= self.attention || self.seen != events
    }

    /// A load or store. Returns `false` if nothing was done: it may cross the end of its page, the buffer is full, recording is
    /// off, or it may be a first touch that must be recorded.
    #[inline(always)]
    pub fn access(&mut self, address: u64, kind: Kind) -> bool {
        if self.runs.is_in_current_page(address, u64::from(Access::MAX_BYTES)) {
            self.runs.add_to_current(kind);
            return true;
        }
        let page = page_of(address);
        address - page <= LAST_PLACE
            && (self.runs.data(page, kind)
                || self.has_touched_lately(page, kind) && self.runs.add_data_anyway(page, kind))
    }

    /// Like [`Current::access`], but checks all pages that were touched, not only the recent ones.
    #[inline(always)]
    pub fn access_again(&mut self, address: u64, kind: Kind) -> bool {
        let page = page_of(address);
        self.has_touched(page, kind) && address - page <= LAST_PLACE && self.runs.add_data_anyway(page, kind)
    }

    /// Fetches in the page at this address. Returns `false` if nothing was done because there is no room or it may be a first
    /// touch that must be recorded.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        self.runs.fetch(page, fetches)
            || self.has_touched_lately(page, Kind::FETCH) && self.runs.add_fetch_anyway(page, fetches)
    }

    /// Like [`Current::fetch`], without a check for first touches.
    #[inline]
    pub fn fetch_anyway(&mut self, page: u64, fetches: u64) -> bool {
        self.runs.add_fetch_anyway(page, fetches)
    }

    #[inline(always)]
    fn has_touched_lately(&self, page: u64, kind: Kind) -> bool {
        self.touched.as_ref().is_some_and(|touched| touched.has_lately(page, kind))
    }

    #[inline(always)]
    fn has_touched(&mut self, page: u64, kind: Kind) -> bool {
        self.touched.as_mut().is_some_and(|touched| touched.has(page, kind))
    }
}
