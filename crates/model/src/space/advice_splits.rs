//! Folios that MADV_FREE, MADV_COLD and MADV_PAGEOUT split.
//!
//! Memory advised as free or cold is kept until the kernel needs it, but a folio that is only partly in the advised range
//! is split into pages, unless another process maps it too. Follows `madvise_free_pte_range` and
//! `madvise_cold_or_pageout_pte_range` (mm/madvise.c).
//!
//! Without swap, MADV_PAGEOUT splits every large folio and then keeps its pages (`shrink_folio_list`, mm/vmscan.c).
//!
//! A split replaces each page that holds zeros by the shared zero page (`try_to_map_unused_to_zeropage`, mm/migrate.c,
//! since Linux 6.12). In the model these are the pages that were never stored to.

use paging::{Error, Format, InputAddress, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::Part;
use super::physical_layout::{ZERO_PA, is_memory};
use crate::address::Pa;

impl<F: Format> AddressSpaces<F> {
    /// Applies MADV_FREE. The range is inspected, because the kernel may drop its content at any time.
    pub(super) fn advise_free(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
        if first < last {
            self.witness_call(first, last)?;
            self.split_cut_folios(first, last)?;
        }
        Ok(())
    }

    /// Applies MADV_COLD.
    pub(super) fn advise_cold(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
        if first < last { Ok(self.split_cut_folios(first, last)?) } else { Ok(()) }
    }

    /// Applies MADV_PAGEOUT on a kernel without swap.
    pub(super) fn advise_pageout(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
        if first < last { Ok(self.split_folios(first, last, |_, _| true)?) } else { Ok(()) }
    }

    /// Splits the folios that are only partly in a range.
    fn split_cut_folios(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        self.split_folios(begin, end, |mapped_bytes, folio_bytes| mapped_bytes < folio_bytes)
    }

    /// Splits folios of a range, with their leaves and groups, into pages. `is_split` selects them by the bytes mapped in
    /// the range and the size of the folio.
    fn split_folios(&mut self, begin: u64, end: u64, is_split: impl Fn(u64, u64) -> bool) -> Result<(), Error> {
        let parts: Vec<Part> = self.parts(begin, end)?.into_iter().filter(|part| is_memory(part.pa)).collect();
        let mut parts = parts.as_slice();
        while let [first, ..] = parts {
            let Some((at, folio)) = self.memory.folios.find(first.pa) else { return Ok(()) };
            let folio_end = at + folio.bytes;
            let count = parts.iter().take_while(|part| (at..folio_end).contains(&part.pa)).count();
            let (mapped, rest) = parts.split_at(count);
            let bytes: u64 = mapped.iter().map(|part| part.bytes).sum();
            if is_split(bytes, folio.bytes) {
                self.split_folio(first.va, mapped)?;
            }
            parts = rest;
        }
        Ok(())
    }

    /// Splits a folio into pages; `parts` are its mapped parts in the advised range.
    fn split_folio(&mut self, va: u64, parts: &[Part]) -> Result<(), Error> {
        let Some(pa) = parts.first().map(|part| part.pa) else { return Ok(()) };
        let Some((at, folio)) = self.memory.folios.find(pa) else { return Ok(()) };
        let folio_bytes = folio.bytes;
        let (begin, end) = self.mappable(va.wrapping_sub(pa - at), folio_bytes);
        if !self.memory.folios.split(pa, &mut self.memory.buddy, &mut self.costs) {
            return Ok(());
        }
        if parts.iter().any(|part| part.leaf_bytes > self.base) {
            self.processes.running.split_leaf(va, &mut self.costs)?;
        }
        for part in parts.iter().filter(|part| part.grouped) {
            if self.leaf(part.va).is_some_and(|leaf| leaf.group_bytes > leaf.leaf_bytes) {
                self.processes.running.tables.unfold(InputAddress(part.va))?;
                self.costs.unfolds += 1;
            }
        }
        self.replace_zeros(begin, end, (at, folio_bytes))
    }

    /// Replaces pages that hold zeros by the zero page; the pages were part of the folio at `at`.
    fn replace_zeros(&mut self, begin: u64, end: u64, (at, bytes): (Pa, u64)) -> Result<(), Error> {
        let mapped = self.parts(begin, end)?.into_iter().filter(|part| (at..at + bytes).contains(&part.pa));
        let pages = mapped
            .flat_map(|part| (0..part.bytes).step_by(self.base as usize).map(move |at| (part.va + at, part.pa + at)));
        let zeros: Vec<u64> = pages.filter(|(_, pa)| !self.memory.folios.is_stored_to(*pa)).map(|(va, _)| va).collect();
        for va in zeros {
            let protection = self.processes.running.vmas.find(va).map_or(0, |(_, vma)| vma.protection);
            self.drop_range(va, va + self.base)?;
            self.map(va, ZERO_PA, self.base, Sizes::up_to(self.base), self.attributes(protection, false))?;
        }
        Ok(())
    }
}
