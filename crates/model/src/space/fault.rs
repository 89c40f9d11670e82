//! Page faults: what the kernel maps when the program touches unmapped or write-protected memory.

use paging::{Error, Format, InputAddress, Sizes};

use super::error::SpaceError;
use super::folio::{CONTIG_BYTES, Reserved};
use super::paged::AddressSpaces;
use super::physical_layout::{ZERO_PA, is_file, is_memory, is_zeros};
use super::vma::{Advice, AtFork, Backing, Locked, Vma};
use crate::accounting::Accounting;
use crate::address::Pa;
use crate::call::{PROT_READ, PROT_WRITE};
use crate::policy::MappingUnit;

/// Maximum bytes of a file that one fault maps from the page cache (`fault_around_bytes`, mm/memory.c).
const FAULT_AROUND_BYTES: u64 = 64 << 10;
/// Maximum size of a stack: an access below the stack makes it grow, up to this size (the default of `ulimit -s`).
const STACK_BYTES: u64 = 8 << 20;

impl<F: Format> AddressSpaces<F> {
    /// Handles a page fault: maps `va`, for a load or a store.
    pub(super) fn fault(&mut self, va: u64, store: bool) -> Result<(), SpaceError> {
        let page = va & !(self.base - 1);
        if page.checked_add(self.base).is_none() {
            return Err(Error::PastTheEnd { va: InputAddress(page), bytes: self.base }.into());
        }
        if let MappingUnit::Direct(_) = self.plan.mapping_unit {
            return self.map_outside(va);
        }
        let (begin, vma) = self.vma_for(va);
        if store && !matches!(vma.backing, Backing::Shared(_) | Backing::SharedFile) {
            self.processes.running.vmas.prepare_anon(va);
        }
        if let Some(pa) = self.processes.running.physical(page) {
            return self.write_fault(page, pa, begin, vma);
        }
        if let Some(slot) = self.processes.running.swapped.get(&page).copied() {
            return self.swap_in(page, slot, vma, store);
        }
        match vma.backing {
            Backing::File | Backing::SharedFile | Backing::Vdso => self.file_fault(page, begin, vma, store),
            Backing::Shared(object) => self.shared_fault(page, begin, vma, object, store),
            Backing::Anonymous | Backing::Hugetlb | Backing::Stack | Backing::Inferred => {
                self.anonymous_fault(page, begin, vma, store)
            }
        }
    }

    /// The VMA of an address that the program touches. If no event describes a VMA there, one is inferred: the recorded program
    /// touched the address without a crash.
    fn vma_for(&mut self, va: u64) -> (u64, Vma) {
        if let Some(found) = self.processes.running.vmas.find(va) {
            return found;
        }
        let page = va & !(self.base - 1);
        if let Some((begin, stack)) = self.processes.running.vmas.after(va)
            && stack.backing == Backing::Stack
            && stack.end - va <= STACK_BYTES
        {
            self.processes.running.vmas.insert(page, Vma { end: begin, ..stack });
            return self.processes.running.vmas.find(va).unwrap_or((page, stack));
        }
        self.costs.outside_bytes += self.base;
        let protection = PROT_READ | PROT_WRITE;
        let end = page + self.base;
        (
            page,
            Vma {
                end,
                protection,
                backing: Backing::Inferred,
                advice: Advice::NoHuge,
                accounting: Accounting::Accounted,
                anon: None,
                at_fork: AtFork::Copied,
                locked: Locked::No,
            },
        )
    }

    /// The aligned window of `bytes` around a page, if it is inside the VMA.
    fn window(&self, page: u64, bytes: u64, begin: u64, vma: Vma) -> Option<u64> {
        let window = page & !(bytes - 1);
        let (begin, end) = (begin & !(self.base - 1), vma.end.next_multiple_of(self.base));
        (window >= begin && window + bytes <= end).then_some(window)
    }

    /// Whether the kernel may map a VMA with large folios. Policies never advise stacks, so stacks have no large folios.
    pub(super) fn may_be_huge(&self, vma: Vma) -> bool {
        let has_folios = matches!(vma.backing, Backing::Anonymous | Backing::Inferred);
        has_folios && !self.plan.mechanism.disable_thp && !self.processes.running.thp_disabled && self.is_advised(vma)
    }

    fn anonymous_fault(&mut self, page: u64, begin: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        let reads_zeros = !store && vma.backing != Backing::Inferred;
        if self.large_fault(page, begin, vma, reads_zeros)? {
            return Ok(());
        }
        if reads_zeros {
            self.costs.zero_faults += 1;
            let attributes = self.attributes(vma.protection, false);
            return Ok(self.map(page, ZERO_PA, self.base, Sizes::up_to(self.base), attributes)?);
        }
        self.costs.anonymous_faults += 1;
        self.map_new_page(page, vma)
    }

    /// Maps more than a base page, as the policy requests. Returns `false` if that is impossible.
    fn large_fault(&mut self, page: u64, begin: u64, vma: Vma, reads_zeros: bool) -> Result<bool, SpaceError> {
        if let Some(bytes) = self.plan.thp_bytes
            && self.may_be_huge(vma)
            && self.huge_fault(page, begin, bytes, vma, reads_zeros)?
        {
            return Ok(true);
        }
        match self.plan.mapping_unit {
            // Even a read allocates a hugetlb page, but maps it read-only (`hugetlb_no_page`, mm/hugetlb.c).
            MappingUnit::Hugetlb(bytes) if matches!(vma.backing, Backing::Hugetlb | Backing::Inferred) => {
                self.processes.running.vmas.prepare_anon(page);
                let protection = if reads_zeros { vma.protection & !PROT_WRITE } else { vma.protection };
                let sizes = self.processes.running.hugetlb_sizes(bytes);
                self.folio_fault(page, begin, bytes, Vma { protection, ..vma }, sizes)
            }
            MappingUnit::Mthp(_) | MappingUnit::Thp(_) if self.may_be_huge(vma) && !reads_zeros => {
                self.pte_mapped_folio_fault(page, begin, vma)
            }
            MappingUnit::Contig64k if self.may_be_huge(vma) => {
                let is_mapped = self.contiguous_fault(page, begin, vma, reads_zeros)?;
                self.costs.anonymous_faults += u64::from(is_mapped);
                Ok(is_mapped)
            }
            _ => Ok(false),
        }
    }

    /// Maps the largest enabled folio that fits and can be allocated by PTEs (`alloc_anon_folio`, mm/memory.c).
    fn pte_mapped_folio_fault(&mut self, page: u64, begin: u64, vma: Vma) -> Result<bool, SpaceError> {
        let sizes = Sizes { largest_bytes: self.base, contiguous: true };
        for bytes in self.plan.pte_mapped_folios(&self.kernel) {
            if self.folio_fault(page, begin, bytes, vma, sizes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Maps one THP leaf for the window around a page: a new folio, or for a read the huge zero page. Returns `false` in the
    /// same cases as [`Self::folio_fault`].
    fn huge_fault(
        &mut self,
        page: u64,
        begin: u64,
        bytes: u64,
        vma: Vma,
        reads_zeros: bool,
    ) -> Result<bool, SpaceError> {
        if !reads_zeros {
            return self.folio_fault(page, begin, bytes, vma, Sizes::up_to(bytes));
        }
        let Some(window) = self.empty_window(page, bytes, begin, vma)? else { return Ok(false) };
        self.processes.running.vmas.prepare_anon(page);
        let attributes = self.attributes(vma.protection, false);
        self.map(window, ZERO_PA, bytes, Sizes::up_to(bytes), attributes)?;
        self.costs.zero_faults += 1;
        Ok(true)
    }

    /// Maps a new folio for the window around a page. Returns `false` if the window is not inside the VMA or not empty, or
    /// if no large enough block is free.
    fn folio_fault(&mut self, page: u64, begin: u64, bytes: u64, vma: Vma, sizes: Sizes) -> Result<bool, SpaceError> {
        let Some(window) = self.empty_window(page, bytes, begin, vma)? else { return Ok(false) };
        let is_mapped = self.map_new_folio(window, bytes, vma, sizes)?;
        self.costs.anonymous_faults += u64::from(is_mapped);
        Ok(is_mapped)
    }

    /// The window around a page, if it is inside the VMA and nothing in it is mapped or in swap.
    fn empty_window(&self, page: u64, bytes: u64, begin: u64, vma: Vma) -> Result<Option<u64>, SpaceError> {
        match self.window(page, bytes, begin, vma) {
            Some(window)
                if self.processes.running.is_empty(window, window + bytes)?
                    && self.may_map_leaf(window, bytes)
                    && !self.processes.running.is_swapped(window, window + bytes) =>
            {
                Ok(Some(window))
            }
            _ => Ok(None),
        }
    }

    /// Whether a leaf of this size can be mapped. A fault maps a THP leaf only where no table exists: `create_huge_pmd`
    /// (mm/memory.c) does not replace a table, only khugepaged does.
    fn may_map_leaf(&self, window: u64, bytes: u64) -> bool {
        let process = &self.processes.running;
        process.rules.huge_bytes != Some(bytes) || process.has_no_table(window, bytes)
    }

    /// Allocates and maps a folio. Returns `false` if no large enough block is free.
    pub(super) fn map_new_folio(
        &mut self,
        window: u64,
        bytes: u64,
        vma: Vma,
        sizes: Sizes,
    ) -> Result<bool, SpaceError> {
        let Some(pa) = self.memory.buddy.allocate(bytes) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        self.map(window, pa, bytes, sizes, attributes)?;
        let is_hugetlb = matches!(self.plan.mapping_unit, MappingUnit::Hugetlb(_));
        self.memory.folios.add(pa, bytes, self.processes.number, window, is_hugetlb);
        self.costs.zero_folio(bytes);
        if sizes.contiguous
            && let Ok(found) = self.processes.running.tables.leaf(InputAddress(window))
        {
            let (geometry, format) = (self.processes.running.tables.geometry(), self.processes.running.tables.format());
            let group = geometry.span(found.level) << format.group_bits(found.level, found.entry);
            if group > geometry.span(found.level) {
                self.costs.folds += bytes / group;
            }
        }
        Ok(true)
    }

    /// Allocates and maps a base page.
    pub(super) fn map_new_page(&mut self, page: u64, vma: Vma) -> Result<(), SpaceError> {
        let (base_bytes, pa) = (self.base, self.allocate_page(page)?);
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        self.map(page, pa, base_bytes, Sizes::up_to(base_bytes), attributes)?;
        self.memory.folios.add(pa, base_bytes, self.processes.number, page, false);
        self.costs.zeroed_bytes += base_bytes;
        Ok(())
    }

    /// Handles a fault under the proposal of 2016 (`contig-64k`): the first fault in a block of 64K reserves the block and maps
    /// one page, the second fault maps the rest. Returns `false` if that is impossible, or if the first fault is a read.
    fn contiguous_fault(&mut self, page: u64, begin: u64, vma: Vma, reads_zeros: bool) -> Result<bool, SpaceError> {
        let Some(window) = self.window(page, CONTIG_BYTES, begin, vma) else { return Ok(false) };
        if !self.is_rest_empty(window)? {
            // Pages that were mapped while the block could not be reserved (MADV_NOHUGEPAGE, a smaller VMA) prevent mapping the
            // rest.
            self.release_reservations(window, window + CONTIG_BYTES);
            return Ok(false);
        }
        let attributes = self.attributes(vma.protection, vma.protection & PROT_WRITE != 0);
        let sizes = Sizes::up_to(self.base);
        if let Some(block) = self.memory.folios.take_reservation(self.processes.number, window) {
            let (before, after) = (block.offset, block.offset + self.base);
            if before > 0 {
                self.map(window, block.pa, before, sizes, attributes)?;
            }
            if after < CONTIG_BYTES {
                self.map(window + after, block.pa + after, CONTIG_BYTES - after, sizes, attributes)?;
            }
            let pages = (0..CONTIG_BYTES).step_by(self.base as usize);
            pages.filter(|at| *at != before).for_each(|at| {
                self.memory.folios.add(block.pa + at, self.base, self.processes.number, window + at, false)
            });
            self.costs.zeroed_bytes += CONTIG_BYTES - self.base;
            if self.processes.running.tables.fold(InputAddress(window)).is_ok() {
                self.costs.folds += 1;
            }
            return Ok(true);
        }
        if reads_zeros {
            return Ok(false);
        }
        let Some(pa) = self.memory.buddy.allocate(CONTIG_BYTES) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let offset = page - window;
        self.map(page, pa + offset, self.base, sizes, attributes)?;
        // The block is split into pages at once, so that each page can be released separately.
        self.memory.folios.add(pa + offset, self.base, self.processes.number, page, false);
        self.memory.folios.reserve(
            self.processes.number,
            window,
            Reserved { pa, bytes: CONTIG_BYTES, offset, page_bytes: self.base },
        );
        self.costs.zeroed_bytes += self.base;
        Ok(true)
    }

    /// Whether nothing in a block is mapped or in swap, except the page that was mapped when the block was reserved.
    fn is_rest_empty(&self, window: u64) -> Result<bool, Error> {
        let reserved_for =
            self.memory.folios.reservation(self.processes.number, window).map(|block| window + block.offset);
        let parts = self.parts(window, window + CONTIG_BYTES)?;
        let is_other_mapped = parts.iter().any(|part| Some(part.va) != reserved_for);
        Ok(!is_other_mapped && !self.processes.running.is_swapped(window, window + CONTIG_BYTES))
    }

    fn file_fault(&mut self, page: u64, begin: u64, vma: Vma, store: bool) -> Result<(), SpaceError> {
        self.costs.file_faults += 1;
        if store && vma.backing == Backing::File {
            // do_cow_fault maps the copy at once.
            self.costs.copied_bytes += self.base;
            return self.map_copied_page(page, vma);
        }
        if store {
            return self.map_file_page(page, vma, true);
        }
        for at in self.unmapped_around(page, begin, vma) {
            self.map_file_page(at, vma, false)?;
        }
        Ok(())
    }

    /// Fault-around: the unmapped pages, including `page`, that a read of a file or of shared memory maps together if they
    /// are in memory (`do_fault_around`, mm/memory.c). They begin at the aligned address or at the beginning of the VMA, and
    /// are all in one table.
    pub(super) fn unmapped_around(&self, page: u64, begin: u64, vma: Vma) -> Vec<u64> {
        let around = FAULT_AROUND_BYTES.max(self.base);
        let table = self.processes.running.tables.geometry().span(1).max(around);
        let first = (page & !(around - 1)).max(begin & !(self.base - 1));
        let end = (first + around).min(vma.end.next_multiple_of(self.base)).min((page & !(table - 1)) + table);
        let is_unmapped = |at: &u64| self.processes.running.tables.translate(InputAddress(*at)).is_err();
        (first..end).step_by(self.base as usize).filter(is_unmapped).collect()
    }

    fn map_file_page(&mut self, page: u64, vma: Vma, writable: bool) -> Result<(), SpaceError> {
        let pa = self.memory.allocate_file_page(self.base);
        let attributes = self.attributes(vma.protection, writable);
        Ok(self.map(page, pa, self.base, Sizes::up_to(self.base), attributes)?)
    }

    /// Allocates and maps a base page to which memory is copied, so the page is not zeroed.
    pub(super) fn map_copied_page(&mut self, page: u64, vma: Vma) -> Result<(), SpaceError> {
        self.map_new_page(page, vma)?;
        self.costs.zeroed_bytes -= self.base;
        Ok(())
    }

    /// Handles a store to write-protected memory.
    fn write_fault(&mut self, page: u64, pa: Pa, begin: u64, vma: Vma) -> Result<(), SpaceError> {
        self.costs.write_faults += 1;
        if is_memory(pa) && !matches!(vma.backing, Backing::Shared(_) | Backing::SharedFile) {
            return self.copy_on_write(page, pa, vma);
        }
        if is_zeros(pa) {
            return self.write_to_zeros(page, begin, vma);
        }
        if is_file(pa) && vma.backing == Backing::File {
            self.drop_range(page, page + self.base)?;
            self.costs.copied_bytes += self.base;
            return self.map_copied_page(page, vma);
        }
        // Shared file pages, and memory of unknown protection, become writable.
        let attributes = self.attributes(vma.protection | PROT_WRITE, true);
        Ok(self.protect(page, page + self.base, attributes)?)
    }

    /// Handles a store to memory that maps the zero page.
    fn write_to_zeros(&mut self, page: u64, begin: u64, vma: Vma) -> Result<(), SpaceError> {
        let process = &self.processes.running;
        if let Some(bytes) = process.rules.huge_bytes.filter(|bytes| process.unit_bytes(page) == Some(*bytes))
            && let Some(window) = self.window(page, bytes, begin, vma)
        {
            // do_huge_zero_wp_pmd replaces the huge zero page by a huge page. If there is none, it maps base zero pages
            // and one new base page.
            self.drop_range(window, window + bytes)?;
            if self.map_new_folio(window, bytes, vma, Sizes::up_to(bytes))? {
                return Ok(());
            }
            self.costs.splits += 1;
            let attributes = self.attributes(vma.protection, false);
            for at in (window..window + bytes).step_by(self.base as usize).filter(|at| *at != page) {
                self.map(at, ZERO_PA, self.base, Sizes::up_to(self.base), attributes)?;
            }
            return self.map_new_page(page, vma);
        }
        self.drop_range(page, page + self.base)?;
        if self.plan.mapping_unit == MappingUnit::Contig64k
            && self.may_be_huge(vma)
            && self.contiguous_fault(page, begin, vma, false)?
        {
            return Ok(());
        }
        self.map_new_page(page, vma)
    }
}
