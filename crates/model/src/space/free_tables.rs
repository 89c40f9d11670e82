//! Frees empty page tables after munmap, mremap and MADV_DONTNEED.
//!
//! A table is kept while a VMA covers any of its addresses (`free_pgd_range`, mm/memory.c), even if the table maps nothing. As
//! long as the table exists, no leaf can replace it, and faults fill its entries one by one.

use paging::format::named::Named;
use paging::{Error, Format, FreeRequest, InputAddress};

use super::paged::AddressSpaces;

impl<F: Format> AddressSpaces<F> {
    /// Frees the tables of a range without VMAs, except those that adjacent VMAs also use (`free_pgtables`,
    /// mm/memory.c).
    pub(super) fn free_tables(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let (below, above) = self.processes.running.vmas.neighbours(begin, end);
        let (half, half_last) = self.half_around(begin);
        let enclosing_va = below.map_or(half, |below| below.next_multiple_of(self.base).clamp(half, begin));
        let last = above.map_or(half_last, |above| (above & !(self.base - 1)).max(end) - 1).min(half_last);
        let request = FreeRequest {
            enclosing_va: InputAddress(enclosing_va),
            enclosing_bytes: last - enclosing_va + 1,
            ..FreeRequest::within(InputAddress(begin), end - begin)
        };
        self.processes.running.free_tables(&request, &mut self.costs)
    }

    /// First and last address of the half of the address space that contains `va`. Programs have the lower half.
    fn half_around(&self, va: u64) -> (u64, u64) {
        if va < self.user_end { (0, self.user_end - 1) } else { (self.user_end.wrapping_neg(), u64::MAX) }
    }

    /// Frees the empty tables of the lowest level that are completely inside a range. Its VMAs are kept.
    pub(super) fn free_page_tables(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let request = FreeRequest { top: 0, ..FreeRequest::within(InputAddress(begin), end - begin) };
        self.processes.running.free_tables(&request, &mut self.costs)
    }

    /// Frees the tables that MADV_DONTNEED has emptied, VMA by VMA, if the kernel does that (`reclaim_pt_is_enabled`,
    /// mm/pt_reclaim.c).
    pub(super) fn reclaim_tables(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        if !self.kernel.pt_reclaim.unwrap_or(matches!(self.plan.format.format, Named::X86_64(_))) {
            return Ok(());
        }
        for (from, vma) in self.processes.running.vmas.within(begin, end) {
            let (first, last) = (from.next_multiple_of(self.base), vma.end & !(self.base - 1));
            if first < last {
                self.free_page_tables(first, last)?;
            }
        }
        Ok(())
    }
}
