// SPDX-License-Identifier: GPL-2.0-or-later
//! What a thread does now: the part of a vCPU that the callbacks use which are called often.

use trace::{Access, Kind, PAGE_SHIFT, Runs, page_of};

use crate::touched::Touched;

/// The last place in a page where an access of any size lies in the page.
const LAST_PLACE: u64 = (1 << PAGE_SHIFT) - Access::MAX_BYTES as u64;

/// What a thread does now: all that callbacks use.
pub struct Current {
    pub(super) runs: Runs,
    /// Instructions that were executed.
    pub(super) instructions: u64,
    /// Instructions at which there is something else to do.
    pub(super) attention: u64,
    /// How many events of all threads this one has seen.
    pub(super) seen: u64,
    /// Pages whose first touches were told; none where nobody asks which of several threads or processes was first.
    pub(super) touched: Option<Box<Touched>>,
}

impl Current {
    /// Counts instructions.
    #[inline(always)]
    pub fn count(&mut self, instructions: u64) {
        self.instructions += instructions;
    }

    /// Whether there is something else to do before more instructions are counted, where there were `events` events.
    #[inline(always)]
    pub fn needs_attention(&self, events: u64) -> bool {
        self.instructions >= self.attention || self.seen != events
    }

    /// A load or store. `false`: nothing was done, because it may cross the end of its page, the buffer is full, nothing is
    /// recorded, or it may be a first touch that must be told.
    #[inline(always)]
    pub fn access(&mut self, address: u64, kind: Kind) -> bool {
        if self.runs.is_in_current_page(address, u64::from(Access::MAX_BYTES)) {
            self.runs.add_to_current(kind);
            return true;
        }
        let page = page_of(address);
        address - page <= LAST_PLACE
            && (self.runs.data(page, kind) || self.has_touched_lately(page, kind) && self.runs.let_data_in(page, kind))
    }

    /// The same where it is looked among all pages that were touched.
    #[inline(always)]
    pub fn access_again(&mut self, address: u64, kind: Kind) -> bool {
        let page = page_of(address);
        self.has_touched(page, kind) && address - page <= LAST_PLACE && self.runs.let_data_in(page, kind)
    }

    /// Fetches in a page, which is given by its address. `false`: nothing was done, because there is no room or it may be a
    /// first touch that must be told.
    #[inline(always)]
    pub fn fetch(&mut self, page: u64, fetches: u64) -> bool {
        self.runs.fetch(page, fetches)
            || self.has_touched_lately(page, Kind::FETCH) && self.runs.let_fetch_in(page, fetches)
    }

    /// Fetches as [`Current::fetch`] does, whether it is a first touch or not.
    #[inline]
    pub fn fetch_anyway(&mut self, page: u64, fetches: u64) -> bool {
        self.runs.let_fetch_in(page, fetches)
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
