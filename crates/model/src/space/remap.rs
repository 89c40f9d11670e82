//! `mremap`: what is mapped goes elsewhere, or has another length.

use paging::{Format, Sizes};

use super::error::SpaceError;
use super::paged::Paged;
use super::part::joined;
use super::vma::Vma;
use crate::call::{PROT_READ, PROT_WRITE};

impl<F: Format> Paged<F> {
    /// Makes of what is mapped from `old` to `old_end` what is mapped from `new` to `new_end`; the two are the same place
    /// or lie apart. What is moved and `keeps` its old place stays there, empty.
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
            self.move_pages(old, moved, new)?;
            if !keeps {
                self.unmap_range(old, old_end)?;
            }
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

    /// Moves what is mapped. Leaves stay as large as the new address lets them.
    fn move_pages(&mut self, old: u64, bytes: u64, new: u64) -> Result<(), SpaceError> {
        let (first, last) = self.pages_within(old, old + bytes);
        let distance = new.wrapping_sub(old);
        if first >= last || distance & (self.base - 1) != 0 {
            // The pages of the model are larger than the distance: what was there is touched again.
            return Ok(());
        }
        // Nor can a page go where another mapping has a part of one.
        let (to, to_end) = self.pages_within(new, new + bytes);
        let (first, last) = (first.max(to.wrapping_sub(distance)), last.min(to_end.wrapping_sub(distance)));
        if first >= last {
            return Ok(());
        }
        let parts = self.parts(first, last)?;
        self.unmap(first, last, &parts)?;
        let swapped = self.processes.running.take_swapped(first, last);
        self.processes
            .running
            .swapped
            .extend(swapped.into_iter().map(|(page, slot)| (page.wrapping_add(distance), slot)));
        for part in joined(parts) {
            let to = part.va.wrapping_add(distance);
            let vma =
                self.processes.running.vmas.find(part.va).map_or(PROT_READ | PROT_WRITE, |(_, vma)| vma.protection);
            let sizes = Sizes { largest_bytes: part.leaf_bytes.max(self.base), contiguous: part.grouped };
            if part.leaf_bytes > self.base && to & (part.leaf_bytes - 1) != 0 {
                self.costs.splits += part.bytes.div_ceil(part.leaf_bytes);
            }
            let attributes = self.attributes(vma, part.writable);
            self.map(to, part.pa, part.bytes, sizes, attributes)?;
            self.memory.folios.moved(part.pa, part.bytes, self.processes.number, to);
        }
        Ok(())
    }
}
