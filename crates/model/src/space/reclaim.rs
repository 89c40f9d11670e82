//! Reclaim: frees memory if no page is free.
//!
//! The order of mm/vmscan.c is simplified to the clock algorithm of Corbató (1968): a hand passes over memory, and a
//! folio that was touched since the last pass gets a second chance. Only anonymous memory counts towards the limit; the
//! page cache does not. Swap is unlimited. A page is brought back alone, at a major fault, without readahead.

use paging::Format;

use super::error::SpaceError;
use super::paged::Paged;
use super::part::joined;
use super::places::is_memory;
use crate::address::Pa;

/// Minimum number of pages that one round frees (`SWAP_CLUSTER_MAX`, include/linux/swap.h).
const CLUSTER_PAGES: u64 = 32;

impl<F: Format> Paged<F> {
    /// Allocates a base page, reclaiming one if necessary.
    pub(super) fn page_for(&mut self, va: u64) -> Result<Pa, SpaceError> {
        let base_bytes = self.base;
        loop {
            if let Some(pa) = self.memory.buddy.allocate(base_bytes) {
                return Ok(pa);
            }
            if !self.reclaim()? {
                return Err(SpaceError::OutOfMemory { va, base_bytes });
            }
        }
    }

    /// Marks a page as touched, once reclaim has started to track touches.
    pub(super) fn touch(&mut self, va: u64) {
        if self.hand.is_some()
            && let Some(pa) = self.processes.running.physical(va)
            && is_memory(pa)
        {
            self.memory.folios.touch(pa);
        }
    }

    /// Frees some pages; `false` if there is nothing to reclaim.
    fn reclaim(&mut self) -> Result<bool, SpaceError> {
        // Blocks and folios of which only parts are used come first: freeing their rest costs nothing.
        if self.memory.give_back_unused(&mut self.costs) {
            return Ok(true);
        }
        let mut freed = 0;
        // One pass clears the touched marks, a second one reclaims.
        for _ in 0..2 * self.memory.folios.len() {
            let Some((at, folio)) = self.memory.folios.next(self.hand.unwrap_or_default()) else { break };
            self.hand = Some(at + folio.bytes);
            let (bytes, pinned) = (folio.bytes, folio.pinned);
            if pinned {
                continue;
            }
            if std::mem::replace(&mut folio.accessed, false) {
                let places: Vec<_> = folio.places().collect();
                places.into_iter().for_each(|place| self.forget(place.process, place.va, bytes));
                continue;
            }
            freed += self.evict(at)?;
            if freed >= CLUSTER_PAGES {
                break;
            }
        }
        Ok(freed != 0)
    }

    /// Requests that the next access of a process to a range is reported.
    fn forget(&mut self, process: u32, va: u64, bytes: u64) {
        self.processes.get_mut(process).into_iter().for_each(|process| process.forgotten.push((va, bytes)));
    }

    /// The part of a range in which something can be mapped. If a folio was moved in part, its beginning may be below
    /// the lowest address, or its end above the highest.
    pub(super) fn mappable(&self, va: u64, bytes: u64) -> (u64, u64) {
        match va.wrapping_add(bytes) {
            end if end < va => (0, end),
            end if va < self.user_end => (va, end.min(self.user_end)),
            end => (va, end),
        }
    }

    /// Unmaps a folio everywhere, after splitting its leaf if it is huge (`TTU_SPLIT_HUGE_PMD`). Returns the number of
    /// freed pages.
    fn evict(&mut self, at: Pa) -> Result<u64, SpaceError> {
        let Some((_, folio)) = self.memory.folios.find(at) else { return Ok(0) };
        let (bytes, places): (u64, Vec<_>) = (folio.bytes, folio.places().collect());
        let (slot, mapped) = (self.slot_for(at, bytes / self.base), self.memory.folios.mapped_pages(at));
        let running = self.processes.number;
        for place in places {
            if !self.processes.enter(place.process, &mut self.costs) {
                continue;
            }
            let (begin, end) = self.mappable(place.va, bytes);
            let parts = self.parts(begin, end)?.into_iter().filter(|part| (at..at + bytes).contains(&part.pa));
            for part in &joined(parts.collect()) {
                let is_large = part.leaf_bytes > self.base;
                self.costs.splits += if is_large { part.bytes / part.leaf_bytes } else { 0 };
                self.drop_range(part.va, part.va + part.bytes)?;
                self.keep_in_swap(part, slot + (part.pa - at) / self.base);
            }
        }
        self.processes.enter(running, &mut self.costs);
        self.costs.swapped_out_bytes += (mapped - self.memory.folios.mapped_pages(at)) * self.base;
        let is_gone = self.memory.folios.find(at).is_none();
        Ok(if is_gone { bytes / self.base } else { 0 })
    }
}
