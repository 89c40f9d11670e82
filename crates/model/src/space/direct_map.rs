//! The kernel's direct map: all memory of a machine, mapped once, with leaves of one size, without faults.
//!
//! Accesses use physical addresses, and each address is mapped to itself. The offset of the real map (`PAGE_OFFSET`) is a
//! multiple of every leaf size, so TLB sets, tables and leaf sizes are the same. As in `init_memory_mapping`
//! (arch/x86/mm/init.c), smaller leaves map the ends of memory.

use paging::{Attributes, Flags, Format, InputAddress, Mapping, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use crate::address::Pa;

impl<F: Format> AddressSpaces<F> {
    /// Maps a range of memory.
    pub(super) fn map_directly(&mut self, begin: u64, end: u64, leaf_bytes: u64) -> Result<(), SpaceError> {
        let (first, last) = (begin & !(self.base - 1), self.base_end(end));
        let attributes = Attributes {
            flags: Flags::READ
                | Flags::WRITE
                | Flags::STATE & self.state_flags()
                | self.processes.running.tables.format().execute(false),
            memory: self.processes.running.tables.format().normal_memory(),
            key: 0,
        };
        let mut at = first;
        // Ranges may overlap, so memory that is already mapped is skipped.
        while at < last {
            if let Some(leaf) = self.leaf(at) {
                at = (at & !(leaf.leaf_bytes - 1)).saturating_add(leaf.leaf_bytes);
                continue;
            }
            let free = self.parts(at, last)?.first().map_or(last, |part| part.va);
            self.processes.running.tables.map(&Mapping {
                va: InputAddress(at),
                pa: Pa(at),
                bytes: free - at,
                attributes,
                sizes: Sizes::up_to(leaf_bytes),
            })?;
            at = free;
        }
        self.processes.running.count_tables(&mut self.costs);
        Ok(())
    }

    fn state_flags(&self) -> Flags {
        if self.processes.running.rules.has_dirty { Flags::STATE } else { Flags::ACCESSED }
    }

    /// Maps a page outside the memory that the trace describes: a page of a device, or any page if the trace has no ranges.
    pub(super) fn map_outside(&mut self, va: u64) -> Result<(), SpaceError> {
        let page = va & !(self.base - 1);
        self.costs.outside_bytes += self.base;
        self.map_directly(page, page + self.base, self.base)
    }
}
