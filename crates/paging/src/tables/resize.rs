//! Changes the size of leaves for the same memory: split and collapse, and fold and unfold of contiguous groups.

use alloc::vec::Vec;

use super::slot::end_of;
use super::{Slot, Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
    /// Ensures that a leaf, a group or a hole begins at a resolved address, which is in this table or at its end.
    pub(super) fn isolate(&mut self, table: OutputAddress, level: u8, va: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        if va >> geometry.input_bits() != 0 {
            return Ok(());
        }
        let is_inside = va & ((geometry.entries(level) << geometry.shift(level)) - 1) != 0;
        let (table, level) = if is_inside { (table, level) } else { (self.root, geometry.root_level()) };
        loop {
            let slot = self.slot_below(table, level, va)?;
            if self.format.kind(slot.level, slot.entry) != Kind::Leaf {
                return Ok(());
            }
            let unit = self.geometry().span(slot.level) << self.format.run_bits();
            let group = self.geometry().span(slot.level) << self.format.group_bits(slot.level, slot.entry);
            if va & (group.max(unit) - 1) == 0 {
                return Ok(());
            }
            if group > unit {
                self.unfold_group(slot)?;
            } else {
                self.split_leaf(slot)?;
            }
        }
    }

    /// Splits the leaf at `va` into leaves of the next lower level, in contiguous groups if the format has them. A page
    /// is left unchanged.
    ///
    /// ```
    /// # use paging::{Attributes, Flags, InputAddress, Mapping, OutputAddress, Sizes, Tables};
    /// # use paging::format::x86_64::X86_64;
    /// # let mut tables = Tables::new(X86_64::new(4, 46), OutputAddress(1 << 30), 1 << 20)?;
    /// # let (va, pa, attributes) = (InputAddress(0), OutputAddress(1 << 32), Attributes::new(Flags::READ | Flags::USER));
    /// tables.map(&Mapping { va, pa, bytes: 2 << 20, attributes, sizes: Sizes::BEST })?;
    /// assert_eq!(tables.translate(va)?.level, 1);
    /// tables.split(va)?;
    /// assert_eq!(tables.translate(va)?.level, 0);
    /// # Ok::<(), paging::Error>(())
    /// ```
    ///
    /// # Errors
    /// `va` is not canonical or not mapped; the arena is full.
    pub fn split(&mut self, va: InputAddress) -> Result<(), Error> {
        self.translate(va)?;
        let slot = self.slot(self.geometry().resolved(va))?;
        if slot.level == 0 {
            return Ok(());
        }
        if self.format.group_bits(slot.level, slot.entry) > self.format.run_bits() {
            self.unfold_group(slot)?;
        }
        let slot = self.slot(slot.va)?;
        self.split_leaf(slot)
    }

    /// Splits every leaf in a range down to `level`, as [`Tables::split`] does.
    ///
    /// # Errors
    /// The range is misaligned or not canonical, or the arena is full.
    pub fn split_range(&mut self, va: InputAddress, bytes: u64, level: u8) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        let mut at = first;
        while at < end {
            let slot = self.slot(at)?;
            if slot.level > level && self.format.kind(slot.level, slot.entry) == Kind::Leaf {
                self.split(geometry.extended(at))?;
            } else {
                at = end_of(at, geometry.span(slot.level));
            }
        }
        Ok(())
    }

    /// Splits the leaves of the run around `slot`, which do not belong to a larger group.
    fn split_leaf(&mut self, slot: Slot) -> Result<(), Error> {
        let geometry = self.geometry();
        let below = slot.level - 1;
        let unit = geometry.span(slot.level) << self.format.run_bits();
        let va = slot.va & !(unit - 1);
        let first = Slot { pa: slot.pa.aligned_down(ENTRY_BYTES << self.format.run_bits()), va, ..slot };
        let attributes = self.format.attributes(slot.level, slot.entry);
        let attributes = Attributes { flags: attributes.flags | self.run_state(first)?, ..attributes };
        let memory = self.format.leaf_address(slot.level, slot.entry, geometry.extended(slot.va));
        let memory = OutputAddress(memory.0.wrapping_sub(slot.va - va));
        let grouped = self.format.group_bits_at(below) != 0;
        let software = slot.entry & self.format.software_bits();
        let leaf = self.format.leaf(below, attributes, grouped)? | software;
        let bytes = self.block_bytes(below);
        let block = self.arena.allocate(bytes, bytes)?;
        let format = self.format;
        if let Some(entries) = self.arena.table_mut(block, bytes / ENTRY_BYTES) {
            bulk::fill(&format, below, entries, leaf, memory, grouped);
        }
        if self.needs_break() {
            self.write_run(first, |_| 0)?;
            self.invalidate(va, unit, false);
            self.link_tables(first, block)
        } else {
            self.link_tables(first, block)?;
            self.invalidate(va, unit, false);
            Ok(())
        }
    }

    fn run_state(&self, first: Slot) -> Result<Flags, Error> {
        let run = 1u64 << self.format.run_bits();
        let outside = || self.outside(first.pa, self.geometry().extended(first.va), first.level);
        let entries = self.arena.table(first.pa, run).ok_or_else(outside)?;
        Ok(entries.iter().map(|entry| self.format.state(*entry)).collect())
    }

    /// Replaces the table (or the tables of a run) for `va` by one leaf at `level`, if all its entries are leaves of
    /// consecutive, aligned memory with the same attributes. The new leaf has the combined accessed and dirty state.
    ///
    /// # Errors
    /// `va` is not canonical, the entries are no such leaves, or the format has no leaf at `level`.
    pub fn collapse(&mut self, va: InputAddress, level: u8) -> Result<(), Error> {
        let geometry = self.geometry();
        let refused = |why| Error::NoGroup { va, level, why };
        if level == 0 || level >= geometry.levels() || !self.format.has_leaf(level) {
            return Err(refused("expected a level at which this format has leaves of several pages"));
        }
        let unit = geometry.span(level) << self.format.run_bits();
        let (start, _) = geometry.range(va.aligned_down(unit), unit)?;
        let slot = self.table_slot(start, level)?.ok_or_else(|| refused("expected an entry that points to a table"))?;
        let bytes = self.block_bytes(level - 1);
        let block = self.format.table_address(slot.entry);
        let members = self.members(block, level - 1, start, bytes / ENTRY_BYTES)?;
        let common = common_leaf(&self.format, level - 1, start, &members).map_err(refused)?;
        if !common.pa.is_aligned(unit) {
            return Err(refused("the memory is not aligned to the leaf"));
        }
        let grouped = self.format.run_bits() != 0 && self.format.group_bits_at(level) == self.format.run_bits();
        let leaf = self.format.leaf(level, common.attributes, grouped)? | common.software;
        let format = self.format;
        let new = move |index| leaf | format.address_bits(level, common.pa.0 + index * geometry.span(level), grouped);
        // Even if hardware needs no break, no table may still be walked when it is released.
        if self.needs_break() {
            self.write_run(slot, |_| 0)?;
            self.invalidate(start, unit, true);
            self.write_run(slot, new)?;
        } else {
            self.write_run(slot, new)?;
            self.invalidate(start, unit, true);
        }
        let mut released = self.arena.collection();
        released.add(block);
        self.release(released);
        Ok(())
    }

    /// The entry at `level` for `va`, if it points to a table.
    fn table_slot(&self, va: u64, level: u8) -> Result<Option<Slot>, Error> {
        let mut table = self.root;
        for above in (level..self.geometry().levels()).rev() {
            let slot = self.slot_in(table, above, va)?;
            match self.format.kind(above, slot.entry) {
                Kind::Table if above == level => return Ok(Some(slot)),
                Kind::Table => table = self.format.table_address(slot.entry),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn members(&self, table: OutputAddress, level: u8, va: u64, count: u64) -> Result<Vec<u64>, Error> {
        let va = self.geometry().extended(va);
        Ok(self.arena.table(table, count).ok_or_else(|| self.outside(table, va, level))?.to_vec())
    }

    /// Makes a contiguous group of the leaves around `va`, if they map consecutive memory, aligned to the group, with
    /// the same attributes. The group has the combined accessed and dirty state.
    ///
    /// # Errors
    /// `va` is not canonical or not mapped; its level has no groups; or the leaves cannot form such a group.
    pub fn fold(&mut self, va: InputAddress) -> Result<(), Error> {
        self.translate(va)?;
        let slot = self.slot(self.geometry().resolved(va))?;
        let level = slot.level;
        let refused = |why| Error::NoGroup { va, level, why };
        let group_bits = self.format.group_bits_at(level);
        if group_bits == 0 {
            return Err(refused("expected a level that has contiguous groups"));
        }
        if self.format.group_bits(level, slot.entry) != 0 {
            return Ok(());
        }
        let first = self.group_start(slot, group_bits);
        let members = self.members(first.pa, level, first.va, 1 << group_bits)?;
        let common = common_leaf(&self.format, level, first.va, &members).map_err(refused)?;
        if !common.pa.is_aligned(self.geometry().span(level) << group_bits) {
            return Err(refused("the memory is not aligned to the group"));
        }
        self.replace_group(first, group_bits, &common, true)
    }

    /// Dissolves a contiguous group: the leaves around `va` become separate leaves. Each gets the accessed and dirty
    /// state of the whole group, because hardware may have set it in any one entry.
    ///
    /// # Errors
    /// `va` is not canonical or not mapped, or its leaf belongs to a group that is not consistent.
    pub fn unfold(&mut self, va: InputAddress) -> Result<(), Error> {
        self.translate(va)?;
        let slot = self.slot(self.geometry().resolved(va))?;
        if self.format.group_bits(slot.level, slot.entry) == 0 {
            return Ok(());
        }
        if self.format.run_bits() != 0 {
            let why = "software writes this group as one entry; split or unmap it";
            return Err(Error::NoGroup { va, level: slot.level, why });
        }
        self.unfold_group(slot)
    }

    fn unfold_group(&mut self, slot: Slot) -> Result<(), Error> {
        let group_bits = self.format.group_bits(slot.level, slot.entry);
        let first = self.group_start(slot, group_bits);
        let members = self.members(first.pa, slot.level, first.va, 1 << group_bits)?;
        let refused = |why| Error::NoGroup { va: self.geometry().extended(first.va), level: slot.level, why };
        let common = common_leaf(&self.format, slot.level, first.va, &members).map_err(refused)?;
        self.replace_group(first, group_bits, &common, false)
    }

    fn group_start(&self, slot: Slot, group_bits: u8) -> Slot {
        let span = self.geometry().span(slot.level);
        Slot { pa: slot.pa.aligned_down(ENTRY_BYTES << group_bits), va: slot.va & !((span << group_bits) - 1), ..slot }
    }

    /// Rewrites all entries of a group.
    fn replace_group(&mut self, first: Slot, group_bits: u8, common: &CommonLeaf, grouped: bool) -> Result<(), Error> {
        let (level, span) = (first.level, self.geometry().span(first.level));
        let leaf = self.format.leaf(level, common.attributes, grouped)? | common.software;
        let slots = move |index: u64| Slot { pa: first.pa + index * ENTRY_BYTES, va: first.va + index * span, ..first };
        let needs_break = self.needs_break();
        if needs_break {
            (0..1 << group_bits).try_for_each(|index| self.write(slots(index), 0))?;
            self.invalidate(first.va, span << group_bits, false);
        }
        for index in 0..1u64 << group_bits {
            let new = leaf | self.format.address_bits(level, common.pa.0 + index * span, grouped);
            self.write(slots(index), new)?;
        }
        if !needs_break {
            self.invalidate(first.va, span << group_bits, false);
        }
        Ok(())
    }
}

/// The common properties of several leaves.
struct CommonLeaf {
    /// The address of the first leaf's memory.
    pa: OutputAddress,
    /// The attributes of all leaves, with the combined state.
    attributes: Attributes,
    software: u64,
}

/// The common properties of `members`, the leaves from the resolved `va` on; an error if they differ.
fn common_leaf(format: &impl Format, level: u8, va: u64, members: &[u64]) -> Result<CommonLeaf, &'static str> {
    let geometry = format.geometry();
    let span = geometry.span(level);
    let first = *members.first().ok_or("expected entries")?;
    let address = |entry, va| format.leaf_address(level, entry, geometry.extended(va));
    let pa = address(first, va);
    let attributes = |entry| {
        let attributes = format.attributes(level, entry);
        Attributes { flags: attributes.flags - Flags::STATE, ..attributes }
    };
    let (expected, software) = (attributes(first), first & format.software_bits());
    let mut state = Flags::empty();
    for (index, entry) in (0u64..).zip(members) {
        if format.kind(level, *entry) != Kind::Leaf {
            return Err("expected leaves without a hole");
        } else if address(*entry, va + index * span) != pa + index * span {
            return Err("expected leaves of consecutive memory");
        } else if attributes(*entry) != expected || entry & format.software_bits() != software {
            return Err("expected leaves with the same attributes");
        } else {
            state |= format.state(*entry)
        }
    }
    Ok(CommonLeaf { pa, attributes: Attributes { flags: expected.flags | state, ..expected }, software })
}
