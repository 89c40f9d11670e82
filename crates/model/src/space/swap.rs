//! Swap-out, swap-in, and faults in shared memory.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::Part;
use super::swap_cache::CacheKey;
use super::vma::{Backing, Object, Vma};
use crate::address::Pa;
use crate::call::PROT_WRITE;

impl<F: Format> AddressSpaces<F> {
    /// The memory that holds the page with this key, if it is in memory.
    pub(super) fn in_memory(&self, key: CacheKey) -> Option<Pa> {
        let pa = self.swap_cache.pa(key)?;
        (self.memory.folios.key(pa) == Some(key)).then_some(pa)
    }

    /// Whether a write to the page at `pa`, mapped by a leaf of `leaf_bytes`, needs no copy: only the running process has it,
    /// in memory and in swap. Every kernel checks this for a large folio mapped by a PMD (`do_huge_pmd_wp_page`), but only
    /// newer kernels for one mapped by PTEs.
    pub(super) fn can_be_reused(&self, pa: Pa, leaf_bytes: u64) -> bool {
        let is_referenced = self.memory.folios.key(pa).is_some_and(|key| self.swap_cache.contains(key));
        let folios = &self.memory.folios;
        let is_large = folios.find(pa).is_some_and(|(_, folio)| folio.bytes > leaf_bytes && !folio.is_hugetlb);
        let can_be = self.kernel.reuses_large_folios || !is_large;
        folios.is_exclusive(pa) || can_be && folios.can_be_reused(pa, self.processes.number) && !is_referenced
    }

    /// Drops the swapped pages of a range, with their references to swap slots.
    pub(super) fn drop_swapped(&mut self, begin: u64, end: u64) {
        let swapped = self.processes.running.take_swapped(begin, end);
        swapped.iter().for_each(|(_, slot)| self.swap_cache.drop_user(*slot));
    }

    /// The swap slot for the first page of a folio to reclaim: the one that other processes already reference, or a new
    /// one.
    pub(super) fn slot_for(&mut self, folio: Pa, pages: u64) -> u64 {
        match self.memory.folios.key(folio).filter(|key| self.swap_cache.contains(*key)) {
            Some(CacheKey::Slot(slot)) => slot,
            _ => self.swap_cache.allocate_slots(pages),
        }
    }

    /// Records the swap slots of a reclaimed part, the first of which is `slot`. Pages of shared memory have keys instead.
    pub(super) fn set_swap_entries(&mut self, part: &Part, slot: u64) {
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

    /// Handles a fault at a swapped page (`do_swap_page`). A store copies the page at once if other processes have it too.
    pub(super) fn swap_in(&mut self, page: u64, slot: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        let key = CacheKey::Slot(slot);
        self.processes.running.swapped.remove(&page);
        let cached = self.in_memory(key);
        match cached {
            Some(pa) => {
                self.costs.anonymous_faults += 1;
                self.map_shared(page, pa, vma, false)?;
            }
            None => {
                self.costs.swap_faults += 1;
                self.map_copied_page(page, vma)?;
            }
        }
        self.swap_cache.drop_user(slot);
        let Some(pa) = self.processes.running.physical(page) else { return Ok(()) };
        if !self.swap_cache.contains(key) {
            // Other processes may still map a page that was in memory. A page from swap is this process's own.
            return if store && cached.is_some() { self.copy_on_write(page, pa, vma) } else { Ok(()) };
        }
        self.swap_cache.put(key, Some(pa));
        self.memory.folios.set_key(pa, key);
        self.memory.folios.set_exclusive(pa, self.base, false);
        self.protect(page, page + self.base, self.attributes(vma.protection, false))?;
        if store { self.copy_on_write(page, pa, vma) } else { Ok(()) }
    }

    /// Handles a fault in shared anonymous memory, in a VMA that begins at `begin`: maps the page from memory or from swap,
    /// or a new one. A load also maps the pages around it that are in memory.
    pub(super) fn shared_fault(
        &mut self,
        page: u64,
        begin: u64,
        vma: Vma,
        object: Object,
        store: bool,
    ) -> Result<(), SpaceError> {
        let key_of = |at: u64| CacheKey::Shared(object.number, at.wrapping_sub(object.origin));
        let around = if store { Vec::new() } else { self.unmapped_around(page, begin, vma) };
        for at in around.into_iter().filter(|at| *at != page) {
            if let Some(pa) = self.in_memory(key_of(at)) {
                self.map_shared(at, pa, vma, vma.protection & PROT_WRITE != 0)?;
            }
        }
        let key = key_of(page);
        if let Some(pa) = self.in_memory(key) {
            self.costs.anonymous_faults += 1;
            return Ok(self.map_shared(page, pa, vma, vma.protection & PROT_WRITE != 0)?);
        }
        if self.swap_cache.is_in_swap(key) {
            self.costs.swap_faults += 1;
            self.map_copied_page(page, vma)?;
        } else {
            self.costs.anonymous_faults += 1;
            self.map_new_page(page, vma)?;
        }
        if let Some(pa) = self.processes.running.physical(page) {
            self.swap_cache.put(key, Some(pa));
            self.memory.folios.set_key(pa, key);
        }
        Ok(())
    }

    /// Frees the shared memory objects whose last mapping was removed. Until then an object keeps its pages, even those that
    /// no process maps.
    pub(super) fn free_objects(&mut self) {
        for object in std::mem::take(&mut self.unmapped_objects) {
            if self.processes.is_object_mapped(object) {
                continue;
            }
            for (key, pa) in self.swap_cache.take_object(object) {
                if self.memory.folios.key(pa) == Some(key) {
                    self.memory.folios.free_shared(pa, &mut self.memory.buddy, &mut self.costs);
                }
            }
        }
    }

    /// Maps a page that is already in memory.
    fn map_shared(&mut self, page: u64, pa: Pa, vma: Vma, writable: bool) -> Result<(), Error> {
        let attributes = self.attributes(vma.protection, writable);
        self.map(page, pa, self.base, Sizes::up_to(self.base), attributes)?;
        self.memory.folios.share(pa, self.base, self.processes.number, page, &mut self.costs);
        Ok(())
    }
}
