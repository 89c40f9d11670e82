//! Faults: what is mapped when memory is touched.

use paging::{Format, Sizes};

use super::event::PROT_WRITE;
use super::folio::Reserved;
use super::{Advice, Backing, FILES_PA, Paged, SpaceError, Vma, ZERO_PA, is_file};
use crate::policy::Granule;

/// Pages of a file that one fault maps where they are in the page cache (`fault_around_bytes`, mm/memory.c).
const FAULT_AROUND_BYTES: u64 = 64 << 10;
/// The proposal's block.
const CONTIG_BYTES: u64 = 64 << 10;
/// How far below a stack an access makes it grow (the default of `ulimit -s`).
const STACK_BYTES: u64 = 8 << 20;

impl<F: Format> Paged<F> {
    /// Maps `va`, for a store or not.
    pub(super) fn fault(&mut self, va: u64, store: bool) -> Result<(), SpaceError> {
        let page = va & !(self.base - 1);
        let (begin, vma) = self.vma_for(va);
        match self.tables.translate(page) {
            Ok(found) => self.write_fault(page, found.pa, begin, vma),
            Err(_) if matches!(vma.backing, Backing::File | Backing::SharedFile) => {
                self.file_fault(page, begin, vma, store)
            }
            Err(_) => self.anonymous_fault(page, begin, vma, store),
        }
    }

    /// The VMA for an address that is touched. There has to be one: a program that was recorded did not crash.
    fn vma_for(&mut self, va: u64) -> (u64, Vma) {
        if let Some(found) = self.vmas.find(va) {
            return found;
        }
        let page = va & !(self.base - 1);
        if let Some((begin, stack)) = self.vmas.after(va)
            && stack.backing == Backing::Stack
            && stack.end - va <= STACK_BYTES
        {
            self.vmas.insert(page, Vma { end: begin, ..stack });
            return self.vmas.find(va).unwrap_or((page, stack));
        }
        self.costs.outside_bytes += self.base;
        let protection = super::event::PROT_READ | PROT_WRITE;
        let end = page + self.base;
        (page, Vma { end, protection, backing: Backing::Inferred, advice: Advice::NoHuge })
    }

    /// The aligned window of `bytes` around a page, if it lies in the VMA.
    fn window(&self, page: u64, bytes: u64, begin: u64, vma: Vma) -> Option<u64> {
        let window = page & !(bytes - 1);
        let (begin, end) = (begin & !(self.base - 1), vma.end.next_multiple_of(self.base));
        (window >= begin && window + bytes <= end).then_some(window)
    }

    fn may_be_huge(&self, vma: Vma) -> bool {
        !self.no_huge && !self.thp_disabled && vma.advice != Advice::NoHuge
    }

    fn anonymous_fault(&mut self, page: u64, begin: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        let reads_zeros = !store && !matches!(vma.backing, Backing::Shared | Backing::Inferred);
        let granule = self.granule;
        match granule {
            Granule::Hugetlb(bytes)
                if matches!(vma.backing, Backing::Anonymous | Backing::Inferred) && vma.advice != Advice::NoHuge =>
            {
                // From a pool, read or written.
                if let Some(window) = self.empty_window(page, bytes, begin, vma)?
                    && self.whole(window, bytes, vma, hugetlb_sizes(self.tables.format(), bytes))?
                {
                    self.costs.anonymous_faults += 1;
                    return Ok(());
                }
            }
            Granule::Thp(bytes) if self.may_be_huge(vma) && vma.backing != Backing::Shared => {
                if let Some(window) = self.empty_window(page, bytes, begin, vma)? {
                    if reads_zeros {
                        let attributes = self.attributes(vma.protection, false);
                        self.map(window, ZERO_PA, bytes, Sizes::up_to(bytes), attributes)?;
                        self.costs.zero_faults += 1;
                        self.costs.deposited_table_bytes += self.tables.geometry().page_bytes();
                        return Ok(());
                    }
                    if self.whole(window, bytes, vma, Sizes::up_to(bytes))? {
                        self.costs.anonymous_faults += 1;
                        self.costs.deposited_table_bytes += self.tables.geometry().page_bytes();
                        return Ok(());
                    }
                }
            }
            Granule::Mthp(bytes) if !reads_zeros && self.may_be_huge(vma) && vma.backing != Backing::Shared => {
                let sizes = Sizes { largest_bytes: self.base, contiguous: true };
                if let Some(window) = self.empty_window(page, bytes, begin, vma)?
                    && self.whole(window, bytes, vma, sizes)?
                {
                    self.costs.anonymous_faults += 1;
                    return Ok(());
                }
            }
            Granule::Contig64k
                if !reads_zeros
                    && self.may_be_huge(vma)
                    && vma.backing != Backing::Shared
                    && self.contiguous_fault(page, begin, vma)? =>
            {
                self.costs.anonymous_faults += 1;
                return Ok(());
            }
            _ => {}
        }
        if reads_zeros {
            self.costs.zero_faults += 1;
            let attributes = self.attributes(vma.protection, false);
            return Ok(self.map(page, ZERO_PA, self.base, Sizes::up_to(self.base), attributes)?);
        }
        self.costs.anonymous_faults += 1;
        self.one_page(page, vma)
    }

    /// The window around a page, if it lies in the VMA and nothing is mapped in it.
    fn empty_window(&self, page: u64, bytes: u64, begin: u64, vma: Vma) -> Result<Option<u64>, SpaceError> {
        match self.window(page, bytes, begin, vma) {
            Some(window) if self.is_empty(window, window + bytes)? => Ok(Some(window)),
            _ => Ok(None),
        }
    }

    /// Allocates and maps a whole folio; `false` if there is no such block of memory.
    fn whole(&mut self, window: u64, bytes: u64, vma: Vma, sizes: Sizes) -> Result<bool, SpaceError> {
        let Some(pa) = self.buddy.allocate(bytes) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        self.map(window, pa, bytes, sizes, attributes)?;
        self.folios.add(pa, bytes);
        self.costs.zeroed_bytes += bytes;
        if sizes.contiguous
            && let Ok(found) = self.tables.translate(window)
        {
            let (geometry, format) = (self.tables.geometry(), self.tables.format());
            let group = geometry.span(found.level) << format.group_bits(found.level, found.entry);
            if group > geometry.span(found.level) {
                self.costs.folds += bytes / group;
            }
        }
        Ok(true)
    }

    /// One base page of memory.
    fn one_page(&mut self, page: u64, vma: Vma) -> Result<(), SpaceError> {
        let base_bytes = self.base;
        let pa = self.buddy.allocate(base_bytes).ok_or(SpaceError::OutOfMemory { va: page, base_bytes })?;
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        self.map(page, pa, base_bytes, Sizes::up_to(base_bytes), attributes)?;
        self.folios.add(pa, base_bytes);
        self.costs.zeroed_bytes += base_bytes;
        Ok(())
    }

    /// The proposal of 2016: the first fault in a block reserves it and maps a page, the second maps the rest. `false`
    /// where that cannot be.
    fn contiguous_fault(&mut self, page: u64, begin: u64, vma: Vma) -> Result<bool, SpaceError> {
        let Some(window) = self.window(page, CONTIG_BYTES, begin, vma) else { return Ok(false) };
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        let sizes = Sizes::up_to(self.base);
        if let Some(block) = self.folios.take_reservation(window) {
            let (before, after) = (block.offset, block.offset + self.base);
            if before > 0 {
                self.map(window, block.pa, before, sizes, attributes)?;
            }
            if after < CONTIG_BYTES {
                self.map(window + after, block.pa + after, CONTIG_BYTES - after, sizes, attributes)?;
            }
            let pages = (0..CONTIG_BYTES).step_by(self.base as usize);
            pages.filter(|at| *at != before).for_each(|at| self.folios.add(block.pa + at, self.base));
            self.costs.zeroed_bytes += CONTIG_BYTES - self.base;
            if self.tables.fold(window).is_ok() {
                self.costs.folds += 1;
            }
            return Ok(true);
        }
        if !self.is_empty(window, window + CONTIG_BYTES)? {
            return Ok(false);
        }
        let Some(pa) = self.buddy.allocate(CONTIG_BYTES) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let offset = page - window;
        self.map(page, pa + offset, self.base, sizes, attributes)?;
        // The block was split into pages at once: each goes back alone.
        self.folios.add(pa + offset, self.base);
        self.folios.reserve(window, Reserved { pa, bytes: CONTIG_BYTES, offset, page_bytes: self.base });
        self.costs.zeroed_bytes += self.base;
        Ok(true)
    }

    fn file_fault(&mut self, page: u64, begin: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        self.costs.file_faults += 1;
        if store && vma.backing == Backing::File {
            // do_cow_fault: the copy is mapped at once.
            self.costs.copied_bytes += self.base;
            return self.copied_page(page, vma);
        }
        if store {
            return self.file_page(page, vma, true);
        }
        let window = page & !(FAULT_AROUND_BYTES.max(self.base) - 1);
        let first = window.max(begin & !(self.base - 1));
        let end = (window + FAULT_AROUND_BYTES.max(self.base)).min(vma.end.next_multiple_of(self.base));
        for at in (first..end).step_by(self.base as usize) {
            if self.tables.translate(at).is_err() {
                self.file_page(at, vma, false)?;
            }
        }
        Ok(())
    }

    fn file_page(&mut self, page: u64, vma: Vma, writable: bool) -> Result<(), SpaceError> {
        let pa = self.next_file_page;
        // The next page is not the neighbour: nothing is known of what is contiguous in the page cache.
        self.next_file_page = FILES_PA + (pa - FILES_PA + 2 * self.base) % (1 << 39);
        let attributes = self.attributes(vma.protection, writable);
        Ok(self.map(page, pa, self.base, Sizes::up_to(self.base), attributes)?)
    }

    /// A page of memory for the copy of a file page; nothing is zeroed.
    fn copied_page(&mut self, page: u64, vma: Vma) -> Result<(), SpaceError> {
        self.one_page(page, vma)?;
        self.costs.zeroed_bytes -= self.base;
        Ok(())
    }

    /// A store to what is mapped and may not be written.
    fn write_fault(&mut self, page: u64, pa: u64, begin: u64, vma: Vma) -> Result<(), SpaceError> {
        self.costs.write_faults += 1;
        let is_zero = (ZERO_PA..FILES_PA).contains(&pa);
        if is_zero {
            let huge = match self.granule {
                Granule::Thp(bytes) => self.window(page, bytes, begin, vma).map(|window| (window, bytes)),
                _ => None,
            };
            let leaf = self.leaf(page).map_or(0, |leaf| leaf.leaf_bytes);
            if let Some((window, bytes)) = huge.filter(|(_, bytes)| leaf == *bytes) {
                // do_huge_zero_wp_pmd: a huge page in place of the huge page full of zeros, or base pages.
                self.drop_range(window, window + bytes)?;
                if self.whole(window, bytes, vma, Sizes::up_to(bytes))? {
                    return Ok(());
                }
                return self.one_page(page, vma);
            }
            self.drop_range(page, page + self.base)?;
            let contiguous = self.granule == Granule::Contig64k && self.may_be_huge(vma);
            if contiguous && self.contiguous_fault(page, begin, vma)? {
                return Ok(());
            }
            return self.one_page(page, vma);
        }
        if is_file(pa) && vma.backing == Backing::File {
            self.drop_range(page, page + self.base)?;
            self.costs.copied_bytes += self.base;
            return self.copied_page(page, vma);
        }
        // Shared file pages, and memory whose protection the trace does not tell: it may be written from now on.
        let attributes = self.attributes(vma.protection | PROT_WRITE, true);
        Ok(self.tables.protect(page, self.base, attributes)?)
    }
}

/// How a page of a pool is mapped: by one leaf, or by a group of smaller ones.
fn hugetlb_sizes(format: &impl Format, bytes: u64) -> Sizes {
    let geometry = format.geometry();
    let is_leaf = (1..geometry.levels())
        .any(|level| format.has_leaf(level) && geometry.span(level) << format.run_bits() == bytes);
    Sizes { largest_bytes: bytes, contiguous: !is_leaf }
}
