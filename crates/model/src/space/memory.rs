//! Physical memory: the allocator, the allocated folios, and the page cache.

use super::buddy::{Buddy, Physical};
use super::folio::Folios;
use super::physical_layout::{FILES_BYTES, FILES_PA, is_memory};
use crate::address::Pa;
use crate::costs::Costs;

/// The memory of a machine.
pub(super) struct Memory {
    /// Total memory in bytes.
    pub(super) bytes: u64,
    pub(super) buddy: Buddy,
    pub(super) folios: Folios,
    /// The next page of the page cache.
    next_file_page: Pa,
}

impl Memory {
    pub(super) fn new(physical: &Physical, base_bytes: u64) -> Memory {
        Memory {
            bytes: physical.bytes,
            buddy: Buddy::new(physical, base_bytes),
            folios: Folios::new(base_bytes),
            next_file_page: FILES_PA,
        }
    }

    /// Records that a process no longer maps a range, and frees the folios that nothing maps.
    pub(super) fn unmap(&mut self, pa: Pa, bytes: u64, process: u32, costs: &mut Costs) {
        if is_memory(pa) {
            self.folios.unmap(pa, bytes, process, &mut self.buddy, costs);
        }
    }

    /// Frees the unmapped parts of a process's reserved blocks in a range.
    pub(super) fn release_reservations(&mut self, process: u32, begin: u64, end: u64) {
        self.folios.release_reservations(process, begin, end, &mut self.buddy);
    }

    /// Frees unused memory: the unmapped rest of a reserved block or of a partly mapped folio. Returns `false` if there is
    /// none.
    pub(super) fn free_unused(&mut self, costs: &mut Costs) -> bool {
        self.folios.release_one_reservation(&mut self.buddy) || self.folios.split_partial_folio(&mut self.buddy, costs)
    }

    /// Updates the counts of allocated memory and of its unmapped part.
    pub(super) fn count_held(&self, costs: &mut Costs) {
        costs.held_bytes = self.buddy.allocated_bytes();
        costs.held_unmapped_bytes = costs.unmapped_bytes + self.folios.reserved_unmapped_bytes();
        costs.held_peak_bytes = costs.held_peak_bytes.max(costs.held_bytes);
        let charged_bytes = costs.held_bytes + costs.table_bytes + costs.deposited_table_bytes;
        costs.charged_peak_bytes = costs.charged_peak_bytes.max(charged_bytes);
        costs.held_unmapped_peak_bytes = costs.held_unmapped_peak_bytes.max(costs.held_unmapped_bytes);
    }

    /// A new page of the page cache. It is not adjacent to the previous one: contiguity in the page cache is unknown.
    pub(super) fn allocate_file_page(&mut self, base_bytes: u64) -> Pa {
        let pa = self.next_file_page;
        self.next_file_page = FILES_PA + (pa - FILES_PA + 2 * base_bytes) % FILES_BYTES;
        pa
    }
}
