//! Forked processes: page tables that are copied, and pages that are copied when they are written.
//!
//! Follows `copy_page_range` (mm/memory.c): anonymous memory is shared and write-protected on both sides; of private files
//! only mappings with written pages are copied; what is shared is left to faults. Caches hold the tables of
//! `MOST_TABLES` processes apart.

use paging::{Format, Sizes};

use super::event::{PROT_WRITE, stretches};
use super::paged::merge;
use super::remap::joined;
use super::*;

impl<F: Format> Paged<F> {
    /// Makes a copy of the running process.
    pub(super) fn fork_process(&mut self) -> Result<u32, SpaceError> {
        let number = self.processes;
        let mut child = Process::new(*self.own.tables.format(), number)?;
        child.vmas = self.own.vmas.clone();
        child.swapped = self.own.swapped.clone();
        child.swapped.values().for_each(|slot| self.names.add_user(*slot));
        (child.thp_disabled, child.heap, child.policy) = (self.own.thp_disabled, self.own.heap, self.own.policy);
        (child.has_forked, self.own.has_forked) = (true, true);
        self.others.insert(number, child);
        self.processes += 1;
        self.costs.processes += 1;
        let vmas: Vec<(u64, Vma)> = self.own.vmas.all().collect();
        let mut done = 0;
        for (begin, vma) in vmas {
            // Neighbours can share a base page that is larger than those of system calls.
            let (begin, end) = ((begin & !(self.base - 1)).max(done), vma.end.next_multiple_of(self.base));
            if begin >= end {
                continue;
            }
            done = end;
            let parts = self.parts(begin, end)?;
            let copied = match vma.backing {
                Backing::Anonymous | Backing::Stack | Backing::Inferred => true,
                Backing::File => parts.iter().any(|part| part.pa < TABLES_PA),
                Backing::Shared(_) | Backing::SharedFile => false,
            };
            if copied && !parts.is_empty() {
                self.copy(number, vma, parts)?;
            }
        }
        Ok(number)
    }

    /// Copies what a VMA maps to a child, and lets nobody write it.
    fn copy(&mut self, child: u32, vma: Vma, parts: Vec<Part>) -> Result<(), SpaceError> {
        let writable: Vec<Part> = parts.iter().copied().filter(|part| part.writable).collect();
        let attributes = self.attributes(vma.protection, false);
        for (begin, end, _) in stretches(&writable) {
            self.protect(begin, end, attributes)?;
        }
        let parts = joined(parts.into_iter().map(|part| Part { writable: false, ..part }).collect());
        let parent = self.number;
        self.enter_process(child);
        let copied = self.map_copies(&parts, vma);
        self.enter_process(parent);
        copied
    }

    fn map_copies(&mut self, parts: &[Part], vma: Vma) -> Result<(), SpaceError> {
        let attributes = self.attributes(vma.protection, false);
        for part in parts {
            let sizes = Sizes { largest_bytes: part.leaf_bytes.max(self.base), contiguous: part.grouped };
            self.map(part.va, part.pa, part.bytes, sizes, attributes)?;
            if part.pa < TABLES_PA {
                self.folios.share(part.pa, part.bytes, self.number, part.va, &mut self.costs);
            }
        }
        Ok(())
    }

    /// Goes on as another process.
    pub(super) fn enter_process(&mut self, process: u32) -> bool {
        if process == self.number {
            return true;
        }
        let Some(next) = self.others.remove(&process) else { return false };
        let before = std::mem::replace(&mut self.own, next);
        self.others_table_bytes += before.tables.arena().used_bytes();
        self.others_table_bytes -= match self.own.is_counted {
            true => self.own.tables.arena().used_bytes(),
            false => 0,
        };
        self.own.is_counted = true;
        self.others.insert(self.number, before);
        self.number = process;
        self.note_tables();
        true
    }

    /// Ends a process that is not running.
    pub(super) fn end_process(&mut self, process: u32) -> Result<(), SpaceError> {
        let running = self.number;
        if process == running || !self.enter_process(process) {
            return Ok(());
        }
        merge(&mut self.ended, &self.own.tables.census()?);
        self.seen.is_looked_at = true;
        self.unmap_everything()?;
        self.enter_process(running);
        if let Some(ended) = self.others.remove(&process) {
            self.others_table_bytes -= ended.tables.arena().used_bytes();
            self.note_tables();
        }
        Ok(())
    }

    /// A store to a page of memory that may not be written: it is copied if anybody else has it (`do_wp_page`,
    /// `do_huge_pmd_wp_page`).
    pub(super) fn copy_on_write(&mut self, page: u64, pa: u64, vma: Vma) -> Result<(), SpaceError> {
        let pool_page = self.pool_page(page, pa)?;
        if self.is_exclusive(pa) {
            let leaf_bytes = self.leaf(page).map_or(self.base, |leaf| leaf.leaf_bytes.max(self.base));
            let (begin, bytes) = pool_page.unwrap_or((page & !(leaf_bytes - 1), leaf_bytes));
            let attributes = self.attributes(vma.protection | PROT_WRITE, true);
            return Ok(self.protect(begin, begin + bytes, attributes)?);
        }
        if let Some((begin, bytes)) = pool_page {
            // hugetlb_wp: a whole page of the pool.
            self.drop_range(begin, begin + bytes)?;
            let sizes = super::fault::hugetlb_sizes(self.own.tables.format(), bytes);
            if !self.whole(begin, bytes, vma, sizes)? {
                return Err(SpaceError::OutOfMemory { va: page, base_bytes: bytes });
            }
            self.costs.zeroed_bytes -= bytes;
            self.costs.copied_bytes += bytes;
            return Ok(());
        }
        // A huge page is split and one page of it is copied.
        self.drop_range(page, page + self.base)?;
        self.costs.copied_bytes += self.base;
        self.copied_page(page, vma)
    }

    /// The page of a pool around `page`, at `pa`: its address and its bytes, if all of it is mapped there.
    pub(super) fn pool_page(&self, page: u64, pa: u64) -> Result<Option<(u64, u64)>, Error> {
        let Some((at, folio)) = self.folios.find(pa).filter(|(_, folio)| folio.pinned) else { return Ok(None) };
        let Some(begin) = page.checked_sub(pa - at) else { return Ok(None) };
        let (begin, end) = self.mappable(begin, folio.bytes);
        let is_all = |part: &Part| (part.pa, part.bytes) == (at, folio.bytes);
        Ok(joined(self.parts(begin, end)?).first().filter(|part| is_all(part)).map(|part| (part.va, part.bytes)))
    }
}
