//! Reclaim: frees memory when no page is free.
//!
//! The LRU lists of mm/vmscan.c are simplified to the clock algorithm of Corbató (1968): a hand passes over memory, and a
//! folio touched since the last pass gets a second chance. Only anonymous memory counts towards the limit; the page cache
//! does not. Swap is unlimited. A major fault reads one page, without readahead.

use paging::Format;

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::merged;
use super::physical_layout::is_memory;
use super::swap_cache::CacheKey;
use crate::address::Pa;

/// Minimum number of pages that one round frees (`SWAP_CLUSTER_MAX`, include/linux/swap.h).
const CLUSTER_PAGES: u64 = 32;

impl<F: Format> AddressSpaces<F> {
    /// Allocates a base page for `va`, after reclaim if necessary.
    pub(super) fn allocate_page(&mut self, va: u64) -> Result<Pa, SpaceError> {
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

    /// Marks a page as touched. Has no effect before the first reclaim.
    pub(super) fn touch(&mut self, va: u64) {
        if self.clock_hand.is_some()
            && let Some(pa) = self.processes.running.physical(va)
            && is_memory(pa)
        {
            self.memory.folios.touch(pa);
        }
    }

    /// Frees some pages. Returns `false` if there is nothing to reclaim.
    fn reclaim(&mut self) -> Result<bool, SpaceError> {
        // The unused rest of blocks and folios is freed first, because nothing has to be swapped out for it.
        if self.memory.free_unused(&mut self.costs) {
            return Ok(true);
        }
        let mut freed = 0;
        // One pass clears the accessed bits, a second one reclaims.
        for _ in 0..2 * self.memory.folios.len() {
            let Some((at, folio)) = self.memory.folios.next(self.clock_hand.unwrap_or_default()) else { break };
            self.clock_hand = Some(at + folio.bytes);
            let (bytes, is_hugetlb) = (folio.bytes, folio.is_hugetlb);
            if is_hugetlb {
                continue;
            }
            if std::mem::replace(&mut folio.accessed, false) {
                let mappings: Vec<_> = folio.mappings().collect();
                mappings.into_iter().for_each(|mapping| self.age(mapping.process, mapping.va, bytes));
                continue;
            }
            freed += self.evict(at)?;
            if freed >= CLUSTER_PAGES {
                break;
            }
        }
        Ok(freed != 0)
    }

    /// Records that the accessed bits of a range are cleared, so that its next access is reported.
    fn age(&mut self, process: u32, va: u64, bytes: u64) {
        self.processes.get_mut(process).into_iter().for_each(|process| process.cleared_accessed.push((va, bytes)));
    }

    /// Clips a range to addresses that can be mapped. After `mremap` moved a part of a folio, its beginning can be below the
    /// lowest address, or its end above the highest.
    pub(super) fn mappable(&self, va: u64, bytes: u64) -> (u64, u64) {
        match va.wrapping_add(bytes) {
            end if end < va => (0, end),
            end if va < self.user_end => (va, end.min(self.user_end)),
            end => (va, end),
        }
    }

    /// Unmaps a folio in all processes and splits huge leaves first (`TTU_SPLIT_HUGE_PMD`). Returns the number of freed
    /// pages.
    fn evict(&mut self, at: Pa) -> Result<u64, SpaceError> {
        let Some((_, folio)) = self.memory.folios.find(at) else { return Ok(0) };
        let (bytes, mappings): (u64, Vec<_>) = (folio.bytes, folio.mappings().collect());
        let (slot, mapped) = (self.slot_for(at, bytes / self.base), self.memory.folios.mapped_pages(at));
        let running = self.processes.number;
        for mapping in mappings {
            if !self.processes.enter(mapping.process, &mut self.costs) {
                continue;
            }
            let (begin, end) = self.mappable(mapping.va, bytes);
            let parts = self.parts(begin, end)?.into_iter().filter(|part| (at..at + bytes).contains(&part.pa));
            for part in &merged(parts.collect()) {
                let is_large = part.leaf_bytes > self.base;
                self.costs.splits += if is_large { part.bytes / part.leaf_bytes } else { 0 };
                self.drop_range(part.va, part.va + part.bytes)?;
                self.set_swap_entries(part, slot + (part.pa - at) / self.base);
            }
        }
        self.processes.enter(running, &mut self.costs);
        if let Some(key @ CacheKey::Shared(..)) = self.memory.folios.key(at) {
            self.swap_cache.put(key, None);
            self.memory.folios.free_shared(at, &mut self.memory.buddy, &mut self.costs);
            self.costs.swapped_out_bytes += bytes;
            return Ok(bytes / self.base);
        }
        self.costs.swapped_out_bytes += (mapped - self.memory.folios.mapped_pages(at)) * self.base;
        let is_freed = self.memory.folios.find(at).is_none();
        Ok(if is_freed { bytes / self.base } else { 0 })
    }
}
