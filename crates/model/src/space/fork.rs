//! Fork and copy on write.
//!
//! Follows `copy_page_range` (mm/memory.c): parent and child share anonymous memory, write-protected in both and no longer
//! exclusive. VMAs without anonymous pages, and shared memory, are not copied; faults map them again. VMAs with MADV_DONTFORK
//! or MADV_WIPEONFORK are not copied, and the parent's pages in them are left unchanged. Tables are copied, even empty ones.
//! The kernel's data before the vDSO is mapped by frame number (VM_PFNMAP), and such a VMA is copied. The data and the vDSO are
//! in one table, so the child gets that table, without entries, if the parent has it.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::{Part, merged, ranges_by};
use super::physical_layout::{is_file, is_memory};
use super::vma::{AtFork, Backing, Vma};
use crate::address::Pa;
use crate::call::PROT_WRITE;

impl<F: Format> AddressSpaces<F> {
    /// Forks the running process and returns the number of the child.
    pub(super) fn fork_process(&mut self) -> Result<u32, SpaceError> {
        let number = self.processes.add_child()?;
        let swapped = self.processes.get_mut(number).map(|child| child.swapped.clone()).unwrap_or_default();
        swapped.values().for_each(|slot| self.swap_cache.add_user(*slot));
        self.costs.processes += 1;
        self.count_processes();
        let vmas: Vec<(u64, Vma)> = self.processes.running.vmas.all().collect();
        let mut done = 0;
        for (begin, vma) in vmas {
            // Base pages can be larger than 4K, so adjacent VMAs can share one.
            let (begin, end) = ((begin & !(self.base - 1)).max(done), vma.end.next_multiple_of(self.base));
            if begin >= end {
                continue;
            }
            done = end;
            if vma.at_fork != AtFork::Copied {
                continue;
            }
            // VMAs without anonymous pages are not copied (`vma_needs_copy`, mm/memory.c).
            if vma.backing == Backing::Vdso {
                let tables = self.processes.running.tables_in(begin, end)?;
                self.processes.copy_tables(number, &tables)?;
                continue;
            }
            let is_shared = matches!(vma.backing, Backing::Shared(_) | Backing::SharedFile);
            let parts = self.parts(begin, end)?;
            if !is_shared && (vma.anon.is_some() || parts.iter().any(|part| is_memory(part.pa))) {
                let tables = self.processes.running.tables_in(begin, end)?;
                self.copy_vma(number, vma, parts)?;
                self.processes.copy_tables(number, &tables)?;
            }
        }
        Ok(number)
    }

    /// Updates the largest number of processes that existed at one time.
    pub(super) fn count_processes(&mut self) {
        self.costs.processes_peak = self.costs.processes_peak.max(1 + self.processes.others.len() as u32);
    }

    /// Write-protects a VMA's memory and maps it in a child too.
    fn copy_vma(&mut self, child: u32, vma: Vma, parts: Vec<Part>) -> Result<(), SpaceError> {
        let writable: Vec<Part> = parts.iter().copied().filter(|part| part.writable).collect();
        let attributes = self.attributes(vma.protection, false);
        for (begin, end, _) in ranges_by(&writable, |_| true) {
            self.protect(begin, end, attributes)?;
        }
        let parts = merged(parts.into_iter().map(|part| Part { writable: false, ..part }).collect());
        let parent = self.processes.number;
        self.processes.enter(child, &mut self.costs);
        let copied = self.map_copies(&parts, vma);
        self.processes.enter(parent, &mut self.costs);
        copied
    }

    fn map_copies(&mut self, parts: &[Part], vma: Vma) -> Result<(), SpaceError> {
        let attributes = self.attributes(vma.protection, false);
        for part in parts {
            let sizes = Sizes { largest_bytes: part.leaf_bytes.max(self.base), contiguous: part.grouped };
            self.map(part.va, part.pa, part.bytes, sizes, attributes)?;
            if is_memory(part.pa) {
                self.memory.folios.share(part.pa, part.bytes, self.processes.number, part.va, &mut self.costs);
            }
        }
        Ok(())
    }

    /// Ends a process that is not running.
    pub(super) fn end_process(&mut self, process: u32) -> Result<(), SpaceError> {
        let running = self.processes.number;
        if process == running || !self.processes.enter(process, &mut self.costs) {
            return Ok(());
        }
        self.processes.record_end()?;
        self.observations.compare_inspects = true;
        self.unmap_everything()?;
        self.processes.enter(running, &mut self.costs);
        self.processes.remove(process, &mut self.costs);
        Ok(())
    }

    /// Handles a store to write-protected memory: copies it, unless no other process has it (`do_wp_page`,
    /// `do_huge_pmd_wp_page`).
    pub(super) fn copy_on_write(&mut self, page: u64, pa: Pa, vma: Vma) -> Result<(), SpaceError> {
        let hugetlb_page = self.hugetlb_page(page, pa)?;
        let leaf_bytes = self.processes.running.unit_bytes(page).unwrap_or(self.base);
        if self.can_be_reused(pa, leaf_bytes) {
            let (begin, bytes) = hugetlb_page.unwrap_or((page & !(leaf_bytes - 1), leaf_bytes));
            let attributes = self.attributes(vma.protection | PROT_WRITE, true);
            self.memory.folios.set_exclusive(Pa(pa.0 - (page - begin)), bytes, true);
            return Ok(self.protect(begin, begin + bytes, attributes)?);
        }
        if let Some((begin, bytes)) = hugetlb_page {
            // hugetlb_wp copies a whole hugetlb page.
            self.drop_range(begin, begin + bytes)?;
            let sizes = self.processes.running.hugetlb_sizes(bytes);
            if !self.map_new_folio(begin, bytes, vma, sizes)? {
                return Err(SpaceError::OutOfMemory { va: page, base_bytes: bytes });
            }
            self.costs.copy_folio(bytes);
            return Ok(());
        }
        // A huge page is split, and one of its pages is copied.
        self.drop_range(page, page + self.base)?;
        self.costs.copied_bytes += self.base;
        self.map_copied_page(page, vma)
    }

    /// Whether a part becomes writable as soon as its protection allows it (`can_change_pte_writable`, mm/mprotect.c):
    /// exclusive private memory and shared memory do. Everything else needs a write fault, including the zero page and file
    /// pages that a write will replace.
    pub(super) fn may_become_writable(&self, part: &Part) -> bool {
        let is_shared = |(_, vma): (u64, Vma)| matches!(vma.backing, Backing::Shared(_));
        let is_exclusive_or_shared = |pa| {
            self.memory.folios.is_exclusive(pa) || self.processes.running.vmas.find(part.va).is_some_and(is_shared)
        };
        is_memory(part.pa) && is_exclusive_or_shared(part.pa) || is_file(part.pa) && part.writable
    }

    /// The hugetlb page that contains `page`, mapped at `pa`: its address and size in bytes, if all of it is mapped.
    pub(super) fn hugetlb_page(&self, page: u64, pa: Pa) -> Result<Option<(u64, u64)>, Error> {
        let Some((at, folio)) = self.memory.folios.find(pa).filter(|(_, folio)| folio.is_hugetlb) else {
            return Ok(None);
        };
        let Some(begin) = page.checked_sub(pa - at) else { return Ok(None) };
        let (begin, end) = self.mappable(begin, folio.bytes);
        let is_all = |part: &Part| (part.pa, part.bytes) == (at, folio.bytes);
        Ok(merged(self.parts(begin, end)?).first().filter(|part| is_all(part)).map(|part| (part.va, part.bytes)))
    }
}
