//! Unmaps ranges and releases their tables.

use super::slot::end_of;
use super::{Slot, Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::arena::{ReleasedTables, Tree};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
    /// Unmaps everything in a range. Leaves and groups that extend past its ends are split; tables that become empty
    /// are released.
    ///
    /// # Errors
    /// The range is misaligned or not canonical, tables cannot be followed, or the arena has no room for the tables of a split.
    pub fn unmap(&mut self, va: InputAddress, bytes: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        self.check_run_alignment(va, OutputAddress(0), bytes)?;
        let (table, level) = self.table_around(first, end)?;
        self.isolate(table, level, first)?;
        self.isolate(table, level, end)?;
        let mut released = self.arena.collection();
        self.clear(table, level, first, end, &mut released)?;
        if level < geometry.root_level() && self.is_rest_empty(table, level, first, end)? {
            // Also clears the entry that points to the table, and those of the tables above it that have nothing else, so that
            // these tables are released too.
            self.clear(self.root, geometry.root_level(), first, end, &mut released)?;
        }
        self.invalidate(first, bytes, released.count != 0);
        self.release(released);
        Ok(())
    }

    /// Turns a range of one table into holes. No leaf extends past its ends.
    fn clear(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        released: &mut ReleasedTables,
    ) -> Result<(), Error> {
        if level == 0 {
            return self.clear_entries(table, level, va, end);
        }
        let unit = self.geometry().span(level) << self.format.run_bits();
        let mut va = va;
        while va < end {
            if level == 1 {
                va = self.clear_whole_tables(table, va, end, released);
                if va == end {
                    break;
                }
            }
            let next = end_of(va, unit).min(end);
            let slot = self.slot_in(table, level, va)?;
            va = match self.format.kind(level, slot.entry) {
                Kind::Hole => next,
                Kind::Table => {
                    self.clear_below(slot, next, released)?;
                    next
                }
                Kind::Leaf | Kind::Illegal => {
                    let next = self.end_of_leaves(table, level, next, end)?;
                    self.clear_entries(table, level, va, next)?;
                    next
                }
            };
        }
        Ok(())
    }

    /// Turns the level 1 entries from `va` on into holes, if they are pointers to tables of pages and cover those
    /// tables completely. Returns the end of the cleared range. With a log it clears nothing, because a log must
    /// receive entries one by one.
    fn clear_whole_tables(&mut self, table: OutputAddress, va: u64, end: u64, released: &mut ReleasedTables) -> u64 {
        let (geometry, pattern) = (self.geometry(), self.format.table_pattern());
        let span = geometry.span(1);
        let whole_end = end & !(span - 1);
        if L::ENABLED || self.format.run_bits() != 0 || va & (span - 1) != 0 || whole_end <= va {
            return va;
        }
        let (first, count) = (table + geometry.index(1, va) * ENTRY_BYTES, (whole_end - va) / span);
        if !self.has_tables(released.count + count) {
            return va;
        }
        match self.arena.table(first, count) {
            Some(entries) if bulk::all_tables(pattern, entries) => {
                let table = |entry: &u64| OutputAddress((entry & pattern.address) << F::ADDRESS_SHIFT);
                released.tables.extend(entries.iter().map(table));
                released.count += count;
                self.arena.clear(first, count);
                whole_end
            }
            _ => va,
        }
    }

    /// Turns the part from `slot` to `end` of the tables of one run of entries into holes.
    fn clear_below(&mut self, slot: Slot, end: u64, released: &mut ReleasedTables) -> Result<(), Error> {
        let geometry = self.geometry();
        let (span, unit) = (geometry.span(slot.level), geometry.span(slot.level) << self.format.run_bits());
        let block_bytes = self.block_bytes(slot.level - 1);
        let block = self.format.table_address(slot.entry).aligned_down(block_bytes);
        let is_alone = slot.level == 1 && self.format.run_bits() == 0;
        let is_whole = end - slot.va == unit || is_alone && self.is_rest_empty(block, 0, slot.va, end)?;
        if is_whole {
            self.collect_tables(block, slot.level - 1, released)?;
        } else {
            let mut va = slot.va;
            while va < end {
                let next = end_of(va, span).min(end);
                let pa = slot.pa
                    + ((va >> geometry.shift(slot.level)) - (slot.va >> geometry.shift(slot.level))) * ENTRY_BYTES;
                let entry = self.arena.read(pa).unwrap_or_default();
                self.clear(self.format.table_address(entry), slot.level - 1, va, next, released)?;
                va = next;
            }
        }
        let is_empty = !is_whole && !is_alone && self.is_empty(block, slot.level - 1)?;
        if is_empty {
            released.add(block);
        }
        if is_whole || is_empty {
            let va = slot.va & !(unit - 1);
            let first = slot.pa.aligned_down(ENTRY_BYTES << self.format.run_bits());
            self.write_run(Slot { pa: first, va, ..slot }, |_| 0)?;
        }
        Ok(())
    }

    /// Collects a block of tables and the tables below it.
    fn collect_tables(&self, block: OutputAddress, level: u8, released: &mut ReleasedTables) -> Result<(), Error> {
        if !self.has_tables(released.count + 1) {
            return Err(Error::NoTree { pa: block, va: InputAddress(0), level });
        }
        if level == 0 {
            released.add(block);
            return Ok(());
        }
        let count = self.block_bytes(level) / ENTRY_BYTES;
        let entries = self.arena.table(block, count).ok_or_else(|| self.outside(block, InputAddress(0), level))?;
        if level == 1 && self.has_tables(released.count + count + 1) && self.is_plain_tree(entries) {
            let (address, shift) = (self.format.table_pattern().address, F::ADDRESS_SHIFT);
            released.add_tree(Tree { pa: block, entries: count, address, shift });
            return Ok(());
        }
        for entry in entries.iter().step_by(1 << self.format.run_bits()) {
            if self.format.kind(level, *entry) == Kind::Table {
                self.collect_tables(self.format.table_address(*entry), level - 1, released)?;
            }
        }
        released.add(block);
        Ok(())
    }

    /// Whether the arena is large enough for `count` tables (or blocks of tables). Tables that form a tree are never more.
    fn has_tables(&self, count: u64) -> bool {
        count <= self.arena.bytes() / self.block_bytes(0)
    }

    /// Whether these entries of a table at level 1 all point to tables of pages. With a log it returns `false`, because
    /// a log must receive entries one by one.
    fn is_plain_tree(&self, entries: &[u64]) -> bool {
        !L::ENABLED && self.format.run_bits() == 0 && bulk::all_tables(self.format.table_pattern(), entries)
    }

    /// Whether a table has only holes outside the range from `va` to `end`.
    fn is_rest_empty(&self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<bool, Error> {
        let geometry = self.geometry();
        let entries = geometry.entries(level);
        let (first, past) = (geometry.index(level, va), geometry.index(level, end - 1) + 1);
        // When a table is unmapped from front to back, the rest follows the range, so that is tested first.
        Ok(self.are_holes(table, level, past, entries)? && self.are_holes(table, level, 0, first)?)
    }

    /// The end of the leaves that begin at `va`: the first other entry, or `end`. With a log it is `va`, because a log
    /// must receive entries one by one.
    pub(super) fn end_of_leaves(&self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<u64, Error> {
        if L::ENABLED || va >= end {
            return Ok(va);
        }
        let (_, entries) = self.entries_around(table, level, va, end)?;
        let mut rest = entries;
        let plain = bulk::Alike::of(&self.format, level);
        while let [first, ..] = rest
            && self.format.kind(level, *first) == Kind::Leaf
        {
            rest = &rest[plain.count(rest).max(1)..];
        }
        let leaves = (entries.len() - rest.len()) as u64;
        Ok((va + (leaves << self.geometry().shift(level))).min(end))
    }

    pub(super) fn is_empty(&self, block: OutputAddress, level: u8) -> Result<bool, Error> {
        self.are_holes(block, level, 0, self.block_bytes(level) / ENTRY_BYTES)
    }

    /// Whether the entries of a table from `first` to `past` are holes.
    fn are_holes(&self, table: OutputAddress, level: u8, first: u64, past: u64) -> Result<bool, Error> {
        let are_holes = |entries: &[u64]| bulk::all_holes(&self.format, level, entries);
        let all = self.arena.all(table + first * ENTRY_BYTES, past - first, are_holes);
        all.ok_or_else(|| self.outside(table, InputAddress(0), level))
    }

    pub(super) fn clear_entries(&mut self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, count) = self.entries(table, level, va, end);
        match L::ENABLED {
            true => self.rewrite(table, level, va, end, |_| 0),
            false if self.arena.clear(first, count) => Ok(()),
            false => Err(self.outside(table, geometry.extended(va), level)),
        }
    }

    /// Replaces the entries of a range of one table.
    pub(super) fn rewrite(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        new: impl Fn(u64) -> u64,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, count) = self.entries(table, level, va, end);
        if !L::ENABLED {
            let Some(entries) = self.arena.table_mut(first, count) else {
                return Err(self.outside(table, geometry.extended(va), level));
            };
            entries.iter_mut().for_each(|entry| *entry = new(*entry));
            return Ok(());
        }
        for index in 0..count {
            let va = va + index * geometry.span(level);
            let slot = self.slot_in(table, level, va)?;
            if new(slot.entry) != slot.entry {
                self.write(slot, new(slot.entry))?;
            }
        }
        Ok(())
    }

    /// Replaces the run of entries that begins at `slot`; `new` receives the index in the run.
    pub(super) fn write_run(&mut self, slot: Slot, new: impl Fn(u64) -> u64) -> Result<(), Error> {
        let span = self.geometry().span(slot.level);
        for index in 0..1u64 << self.format.run_bits() {
            let (pa, va) = (slot.pa + index * ENTRY_BYTES, slot.va + index * span);
            self.write(Slot { pa, va, ..slot }, new(index))?;
        }
        Ok(())
    }

    /// The entry for `va` in one table.
    pub(super) fn slot_in(&self, table: OutputAddress, level: u8, va: u64) -> Result<Slot, Error> {
        let geometry = self.geometry();
        let pa = table + geometry.index(level, va) * ENTRY_BYTES;
        let entry = self.arena.read(pa).ok_or_else(|| self.outside(table, geometry.extended(va), level))?;
        Ok(Slot { pa, va, level, entry })
    }
}
