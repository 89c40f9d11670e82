//! `mremap`: moves mapped memory, or changes its length.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::part::{Part, merged};
use super::vma::Vma;
use crate::call::{PROT_READ, PROT_WRITE};

/// Parts that are unmapped and not mapped again yet, with their protection, and the distance by which they move.
#[derive(Debug, Default)]
struct Moved {
    distance: u64,
    parts: Vec<(Part, u64)>,
}

impl<F: Format> AddressSpaces<F> {
    /// Replaces the mapping from `old` to `old_end` by one from `new` to `new_end`. Both begin at the same address or do not
    /// overlap. With `keeps` (MREMAP_DONTUNMAP) the old mapping remains, empty.
    pub(super) fn remap(
        &mut self,
        old: u64,
        old_end: u64,
        new: u64,
        new_end: u64,
        keeps: bool,
    ) -> Result<(), SpaceError> {
        let moved = (old_end - old).min(new_end - new);
        let vmas = self.processes.running.vmas.within(old, old + moved);
        if new == old {
            self.unmap_range(old + moved, old_end)?;
        } else {
            self.unmap_range(new, new_end)?;
            let tables = self.destination_tables(old, moved, new)?;
            let taken = self.take_pages(old, moved, new)?;
            if keeps {
                self.free_moved_tables(old, moved, new)?;
            } else {
                self.unmap_range(old, old_end)?;
            }
            self.put_pages(taken)?;
            self.processes.running.make_tables(&tables, &mut self.costs)?;
            for (begin, vma) in &vmas {
                self.processes.running.vmas.insert(new + (begin - old), vma.moved(new.wrapping_sub(old)));
            }
        }
        if let Some((_, vma)) = vmas.last().filter(|_| new + moved < new_end) {
            self.unmap_range(new + moved, new_end)?;
            self.processes.running.vmas.insert(new + moved, Vma { end: new_end, ..vma.moved(new.wrapping_sub(old)) });
        }
        Ok(())
    }

    /// The tables that a range needs at its new address: those that correspond to the tables at its old address, even empty
    /// ones (`move_page_tables`, mm/mremap.c). Returns an address in each, and its level.
    fn destination_tables(&self, old: u64, bytes: u64, new: u64) -> Result<Vec<(u64, u8)>, Error> {
        let process = &self.processes.running;
        let (geometry, format) = (process.tables.geometry(), process.tables.format());
        let ((first, last), distance) = (self.pages_within(old, old + bytes), new.wrapping_sub(old));
        if first >= last || distance & (self.base - 1) != 0 {
            return Ok(Vec::new());
        }
        let mut tables = Vec::new();
        for (va, level) in process.tables_in(first, last)? {
            let table_bytes = geometry.span(level + 1) << format.run_bits();
            let end = (va & !(table_bytes - 1)).saturating_add(table_bytes).min(last);
            let (begin, end) = (va.wrapping_add(distance), end.wrapping_add(distance));
            let inside = (begin & !(table_bytes - 1)..end).step_by(table_bytes as usize);
            tables.extend(inside.map(|at| (at.max(begin), level)));
        }
        Ok(tables)
    }

    /// Unmaps the pages of a range in order to move them.
    fn take_pages(&mut self, old: u64, bytes: u64, new: u64) -> Result<Moved, SpaceError> {
        let (first, last) = self.pages_within(old, old + bytes);
        let distance = new.wrapping_sub(old);
        if first >= last || distance & (self.base - 1) != 0 {
            // The distance is no multiple of the model's base page, so pages cannot move: the program faults them in again.
            return Ok(Moved::default());
        }
        // A base page cannot move either to an address in a base page that another mapping also uses.
        let (to, to_end) = self.pages_within(new, new + bytes);
        let (first, last) = (first.max(to.wrapping_sub(distance)), last.min(to_end.wrapping_sub(distance)));
        if first >= last {
            return Ok(Moved::default());
        }
        let parts = self.parts(first, last)?;
        self.unmap(first, last, &parts)?;
        let swapped = self.processes.running.take_swapped(first, last);
        self.processes
            .running
            .swapped
            .extend(swapped.into_iter().map(|(page, slot)| (page.wrapping_add(distance), slot)));
        let protection = |part: &Part| {
            self.processes.running.vmas.find(part.va).map_or(PROT_READ | PROT_WRITE, |(_, vma)| vma.protection)
        };
        let parts = merged(parts).into_iter().map(|part| (part, protection(&part))).collect();
        Ok(Moved { distance, parts })
    }

    /// Maps the moved pages, with leaves as large as the new address allows.
    fn put_pages(&mut self, moved: Moved) -> Result<(), SpaceError> {
        for (part, protection) in moved.parts {
            let to = part.va.wrapping_add(moved.distance);
            let sizes = Sizes { largest_bytes: part.leaf_bytes.max(self.base), contiguous: part.grouped };
            if part.leaf_bytes > self.base && to & (part.leaf_bytes - 1) != 0 {
                self.costs.splits += part.bytes.div_ceil(part.leaf_bytes);
            }
            let attributes = self.attributes(protection, part.writable);
            self.map(to, part.pa, part.bytes, sizes, attributes)?;
            self.memory.folios.move_mapping(part.pa, part.bytes, self.processes.number, to);
        }
        Ok(())
    }

    /// Frees the lowest-level tables at the old address if the VMA remains there: if both addresses have the same offset in
    /// a table, the kernel has moved whole tables (`move_normal_pmd`, mm/mremap.c).
    fn free_moved_tables(&mut self, old: u64, bytes: u64, new: u64) -> Result<(), Error> {
        let (geometry, format) = (self.processes.running.tables.geometry(), self.processes.running.tables.format());
        let table_bytes = geometry.span(1) << format.run_bits();
        let (first, last) = self.pages_within(old, old + bytes);
        if new.wrapping_sub(old) & (table_bytes - 1) != 0 || first >= last {
            return Ok(());
        }
        self.free_page_tables(first, last)
    }
}
