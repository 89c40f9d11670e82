//! Memory that is advised as free or cold: it stays until the kernel needs it, but folios that the advised range covers
//! only partly are split.
//!
//! Follows `madvise_free_pte_range` and `madvise_cold_or_pageout_pte_range` (mm/madvise.c): a folio that is completely
//! in the range stays as it is; any other that no other process maps is split into pages.

use paging::{Error, Format, InputAddress};

use super::error::SpaceError;
use super::paged::Paged;
use super::part::Part;
use super::places::is_memory;

impl<F: Format> Paged<F> {
    /// Advises a range as free. It is inspected, because the kernel may drop the content at any time.
    pub(super) fn advise_free(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
        if first < last {
            self.witness_call(first, last)?;
            self.split_what_is_cut(first, last)?;
        }
        Ok(())
    }

    /// Advises a range as cold.
    pub(super) fn advise_cold(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
        if first < last { Ok(self.split_what_is_cut(first, last)?) } else { Ok(()) }
    }

    /// Splits the folios that are partly in a range, and their leaves and groups, into pages.
    fn split_what_is_cut(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let parts: Vec<Part> = self.parts(begin, end)?.into_iter().filter(|part| is_memory(part.pa)).collect();
        let mut parts = parts.as_slice();
        while let [first, ..] = parts {
            let Some((at, folio)) = self.memory.folios.find(first.pa) else { return Ok(()) };
            let folio_end = at + folio.bytes;
            let of_it = parts.iter().take_while(|part| (at..folio_end).contains(&part.pa)).count();
            let (mapped, rest) = parts.split_at(of_it);
            let bytes: u64 = mapped.iter().map(|part| part.bytes).sum();
            if bytes < folio.bytes {
                self.split_folio(first.va, mapped)?;
            }
            parts = rest;
        }
        Ok(())
    }

    /// Splits a folio into pages; `parts` are its mapped parts in the advised range.
    fn split_folio(&mut self, va: u64, parts: &[Part]) -> Result<(), Error> {
        let Some(pa) = parts.first().map(|part| part.pa) else { return Ok(()) };
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
        Ok(())
    }
}
