//! Changes to a process's tables, with their costs: mapping, unmapping, protecting, splitting.

use paging::{Attributes, Error, Format, FreeRequest, InputAddress, Mapping};

use super::part::Part;
use super::physical_layout::{is_file, is_memory};
use super::process::{EdgeSplit, Process};
use crate::costs::Costs;

impl<F: Format> Process<F> {
    pub(super) fn map(&mut self, mapping: &Mapping, costs: &mut Costs) -> Result<(), Error> {
        self.tables.map(mapping)?;
        if is_file(mapping.pa) {
            costs.file_bytes += mapping.bytes;
        } else if is_memory(mapping.pa) {
            costs.anonymous_bytes += mapping.bytes;
        }
        costs.resident_peak_bytes = costs.resident_peak_bytes.max(costs.resident_bytes());
        if Some(mapping.sizes.largest_bytes) == self.rules.huge_bytes {
            let leaves = self.whole_huge_leaves(&self.parts(mapping.va.0, mapping.va.0 + mapping.bytes)?);
            self.huge_leaves += leaves;
            costs.deposited_table_bytes += leaves * self.deposit_bytes();
        }
        self.count_tables(costs);
        Ok(())
    }

    /// Changes the attributes of the memory mapped in a range. Leaves and groups that extend past its ends are split.
    pub(super) fn protect(
        &mut self,
        begin: u64,
        end: u64,
        attributes: Attributes,
        costs: &mut Costs,
    ) -> Result<(), Error> {
        self.count_splits(begin, end, costs);
        self.tables.protect(InputAddress(begin), end - begin, attributes)?;
        self.count_tables(costs);
        Ok(())
    }

    /// Unmaps a range but keeps its tables. `parts` must be all its mapped parts.
    pub(super) fn unmap(&mut self, begin: u64, end: u64, parts: &[Part], costs: &mut Costs) -> Result<(), Error> {
        self.count_splits(begin, end, costs);
        self.tables.unmap_leaves(InputAddress(begin), end - begin)?;
        self.uncount_huge_leaves(self.whole_huge_leaves(parts), costs);
        self.count_tables(costs);
        for part in parts {
            if is_file(part.pa) {
                costs.file_bytes -= part.bytes;
            } else if is_memory(part.pa) {
                costs.anonymous_bytes -= part.bytes;
            }
        }
        Ok(())
    }

    /// Creates empty tables, given by an address in each and its level.
    pub(super) fn make_tables(&mut self, tables: &[(u64, u8)], costs: &mut Costs) -> Result<(), Error> {
        tables.iter().try_for_each(|(va, level)| self.tables.make_tables(InputAddress(*va), *level))?;
        self.count_tables(costs);
        Ok(())
    }

    /// Frees the empty tables that `request` selects.
    pub(super) fn free_tables(&mut self, request: &FreeRequest, costs: &mut Costs) -> Result<(), Error> {
        self.tables.free_empty_tables(request)?;
        self.count_tables(costs);
        Ok(())
    }

    /// Splits the THP leaf that spans an address at which a VMA now begins or ends (`vma_adjust_trans_huge`,
    /// mm/huge_memory.c); `page` is the base page that contains `va`.
    pub(super) fn split_at_edge(&mut self, va: u64, page: u64, costs: &mut Costs) -> Result<(), Error> {
        let is_cut =
            self.rules.huge_bytes.is_some() && self.vmas.has_edge(va) && self.edge_split_at(page).leaf.is_some();
        if is_cut { self.split_leaf(page, costs) } else { Ok(()) }
    }

    /// Splits the THP leaf that contains `va`.
    pub(super) fn split_leaf(&mut self, va: u64, costs: &mut Costs) -> Result<(), Error> {
        costs.splits += 1;
        self.uncount_huge_leaves(1, costs);
        self.tables.split(InputAddress(va))?;
        self.count_tables(costs);
        Ok(())
    }

    /// Updates the table sizes in the costs.
    pub(super) fn count_tables(&mut self, costs: &mut Costs) {
        let used_bytes = self.tables.arena().used_bytes();
        costs.table_bytes = costs.table_bytes - self.counted_table_bytes + used_bytes;
        self.counted_table_bytes = used_bytes;
        costs.table_peak_bytes = costs.table_peak_bytes.max(costs.table_bytes);
        let all_bytes = costs.table_bytes + costs.deposited_table_bytes;
        costs.all_table_peak_bytes = costs.all_table_peak_bytes.max(all_bytes);
        let own_bytes = self.table_bytes();
        if own_bytes > self.peak_table_bytes {
            costs.process_table_bytes += own_bytes - self.peak_table_bytes;
            self.peak_table_bytes = own_bytes;
        }
    }

    /// The number of parts that are whole THP leaves.
    fn whole_huge_leaves(&self, parts: &[Part]) -> u64 {
        let huge = self.rules.huge_bytes;
        parts.iter().filter(|part| Some(part.leaf_bytes) == huge && part.bytes == part.leaf_bytes).count() as u64
    }

    /// Subtracts THP leaves from the counts, with the tables deposited for them, which are used or freed.
    fn uncount_huge_leaves(&mut self, leaves: u64, costs: &mut Costs) {
        self.huge_leaves -= leaves;
        costs.deposited_table_bytes -= leaves * self.deposit_bytes();
    }

    /// Counts the leaves and groups that a change of this range splits at its ends, and subtracts split THP leaves from the
    /// counts.
    fn count_splits(&mut self, begin: u64, end: u64, costs: &mut Costs) {
        let (first, last) = (self.edge_split_at(begin), self.edge_split_at(end));
        let is_same = |cut: fn(&EdgeSplit) -> Option<u64>| cut(&first).is_some() && cut(&first) == cut(&last);
        let count = |cut: fn(&EdgeSplit) -> Option<u64>| {
            u64::from(cut(&first).is_some()) + u64::from(cut(&last).is_some()) - u64::from(is_same(cut))
        };
        let (leaves, groups) = (count(|cut| cut.leaf), count(|cut| cut.group));
        costs.splits += leaves;
        costs.unfolds += groups;
        if self.rules.huge_bytes.is_some() {
            self.uncount_huge_leaves(leaves, costs);
        }
    }
}
