//! Pages in swap and pages of shared memory: storing them and bringing them back.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::Paged;
use super::part::Part;
use super::swap_cache::CacheKey;
use super::vma::{Backing, Object, Vma};
use crate::address::Pa;
use crate::call::PROT_WRITE;

impl<F: Format> Paged<F> {
    /// The memory that holds the page with a key, if any.
    pub(super) fn in_memory(&self, key: CacheKey) -> Option<Pa> {
        let pa = self.swap_cache.pa(key)?;
        (self.memory.folios.key(pa) == Some(key)).then_some(pa)
    }

    /// Whether only the running process has the page at `pa`, in memory and in swap, so that a write needs no copy. A
    /// leaf of `leaf_bytes` maps it. For a large folio mapped by a PMD every kernel checks this
    /// (`do_huge_pmd_wp_page`); for one mapped by PTEs only newer kernels do.
    pub(super) fn can_be_reused(&self, pa: Pa, leaf_bytes: u64) -> bool {
        let is_asked_for = self.memory.folios.key(pa).is_some_and(|key| self.swap_cache.contains(key));
        let folios = &self.memory.folios;
        let is_large = folios.find(pa).is_some_and(|(_, folio)| folio.bytes > leaf_bytes && !folio.pinned);
        let can_be = self.kernel.reuses_large_folios || !is_large;
        folios.is_exclusive(pa) || can_be && folios.can_be_reused(pa, self.processes.number) && !is_asked_for
    }

    /// Drops the reclaimed pages of a range that is unmapped.
    pub(super) fn forget_swapped(&mut self, begin: u64, end: u64) {
        let swapped = self.processes.running.take_swapped(begin, end);
        swapped.iter().for_each(|(_, slot)| self.swap_cache.drop_user(*slot));
    }

    /// The slot in swap for the first page of a folio that is reclaimed: a new one, or the one that other processes
    /// already have.
    pub(super) fn slot_for(&mut self, folio: Pa, pages: u64) -> u64 {
        match self.memory.folios.key(folio).filter(|key| self.swap_cache.contains(*key)) {
            Some(CacheKey::Slot(slot)) => slot,
            _ => self.swap_cache.slots(pages),
        }
    }

    /// Replaces a reclaimed part by its slots; the first page has `slot`.
    pub(super) fn keep_in_swap(&mut self, part: &Part, slot: u64) {
        for (page, at) in (0..part.bytes).step_by(self.base as usize).enumerate() {
            let va = part.va + at;
            if let Some((_, Vma { backing: Backing::Shared(object), .. })) = self.processes.running.vmas.find(va) {
                self.swap_cache.put(CacheKey::Shared(object.number, va.wrapping_sub(object.origin)), None);
            } else {
                self.processes.running.swapped.insert(va, slot + page as u64);
                self.swap_cache.add_user(slot + page as u64);
            }
        }
    }

    /// Brings a page back (`do_swap_page`). A store to a page that other processes have too copies it at once.
    pub(super) fn swap_in(&mut self, page: u64, slot: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        let key = CacheKey::Slot(slot);
        self.processes.running.swapped.remove(&page);
        match self.in_memory(key) {
            Some(pa) => {
                self.costs.anonymous_faults += 1;
                self.map_shared(page, pa, vma, false)?;
            }
            None => {
                self.costs.swap_faults += 1;
                self.copied_page(page, vma)?;
            }
        }
        self.swap_cache.drop_user(slot);
        let Some(pa) = self.processes.running.physical(page) else { return Ok(()) };
        if !self.swap_cache.contains(key) {
            return Ok(());
        }
        self.swap_cache.put(key, Some(pa));
        self.memory.folios.set_key(pa, key);
        self.memory.folios.set_exclusive(pa, self.base, false);
        self.protect(page, page + self.base, self.attributes(vma.protection, false))?;
        if store { self.copy_on_write(page, pa, vma) } else { Ok(()) }
    }

    /// Handles a fault in shared anonymous memory: maps a page that is in memory or in swap, or a new one.
    pub(super) fn shared_fault(&mut self, page: u64, vma: Vma, object: Object) -> Result<(), SpaceError> {
        let key = CacheKey::Shared(object.number, page.wrapping_sub(object.origin));
        if let Some(pa) = self.in_memory(key) {
            self.costs.anonymous_faults += 1;
            return Ok(self.map_shared(page, pa, vma, vma.protection & PROT_WRITE != 0)?);
        }
        if self.swap_cache.is_in_swap(key) {
            self.costs.swap_faults += 1;
            self.copied_page(page, vma)?;
        } else {
            self.costs.anonymous_faults += 1;
            self.one_page(page, vma)?;
        }
        if let Some(pa) = self.processes.running.physical(page) {
            self.swap_cache.put(key, Some(pa));
            self.memory.folios.set_key(pa, key);
        }
        Ok(())
    }

    /// Maps a page that is already in memory.
    fn map_shared(&mut self, page: u64, pa: Pa, vma: Vma, writable: bool) -> Result<(), Error> {
        let attributes = self.attributes(vma.protection, writable);
        self.map(page, pa, self.base, Sizes::up_to(self.base), attributes)?;
        self.memory.folios.share(pa, self.base, self.processes.number, page, &mut self.costs);
        Ok(())
    }
}
