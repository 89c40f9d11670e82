//! Physical memory: the allocator, the allocated folios, and the page cache.

use super::buddy::{Buddy, Physical};
use super::cost::Costs;
use super::folio::Folios;
use super::places::{FILES_BYTES, FILES_PA, is_memory};
use crate::address::Pa;

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

    /// Notes that a process no longer maps a range.
    pub(super) fn give_back(&mut self, pa: Pa, bytes: u64, process: u32, costs: &mut Costs) {
        if is_memory(pa) {
            self.folios.unmap(pa, bytes, process, &mut self.buddy, costs);
        }
    }

    /// Gives up the blocks, of which one page is mapped, of a process in a range.
    pub(super) fn give_up_reservations(&mut self, process: u32, begin: u64, end: u64) {
        self.folios.give_up_reservations(process, begin, end, &mut self.buddy);
    }

    /// Frees memory that is not used: the rest of a block, or of a partly mapped folio. Returns `false` if there is none.
    pub(super) fn give_back_unused(&mut self, costs: &mut Costs) -> bool {
        self.folios.give_up_a_reservation(&mut self.buddy) || self.folios.split_a_partial_one(&mut self.buddy, costs)
    }

    /// Updates the counts of held memory: everything that is allocated, and its unmapped part.
    pub(super) fn count_held(&self, costs: &mut Costs) {
        costs.held_bytes = self.buddy.allocated_bytes();
        costs.held_unmapped_bytes = costs.unmapped_bytes + self.folios.reserved_rest_bytes();
        costs.held_peak_bytes = costs.held_peak_bytes.max(costs.held_bytes);
        costs.held_unmapped_peak_bytes = costs.held_unmapped_peak_bytes.max(costs.held_unmapped_bytes);
    }

    /// A new page of the page cache. It is not adjacent to the previous one, because contiguity in the page cache is unknown.
    pub(super) fn file_page(&mut self, base_bytes: u64) -> Pa {
        let pa = self.next_file_page;
        self.next_file_page = FILES_PA + (pa - FILES_PA + 2 * base_bytes) % FILES_BYTES;
        pa
    }
}
