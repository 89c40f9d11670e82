//! Unmapping ranges, and giving them other attributes.

use alloc::vec::Vec;

use super::map::end_of;
use super::{LEVELS, Slot, Tables, bulk};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::format::{Change, Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
    /// Unmaps whatever is mapped in a range. Leaves and groups that reach over its ends are split; tables that
    /// become empty are given back.
    ///
    /// # Errors
    /// A range that is misaligned or not canonical; tables that cannot be followed; an arena too full for the
    /// tables of a split.
    pub fn unmap(&mut self, va: u64, bytes: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        self.whole_runs(va, 0, bytes)?;
        self.isolate(first)?;
        self.isolate(end)?;
        let mut released = Vec::new();
        self.clear(self.root, geometry.root_level(), first, end, &mut released)?;
        self.invalidate(first, bytes, !released.is_empty());
        self.release(released);
        Ok(())
    }

    /// Makes holes of a range of one table, whose ends no leaf reaches over.
    fn clear(&mut self, table: u64, level: u8, va: u64, end: u64, released: &mut Vec<u64>) -> Result<(), Error> {
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

    /// Makes holes of the entries of level 1 from `va` on, if they are for whole tables of pages and nothing else. Says up
    /// to where it did; with a log nowhere, because it is told of one after the other.
    fn clear_whole_tables(&mut self, table: u64, va: u64, end: u64, released: &mut Vec<u64>) -> u64 {
        let (format, geometry) = (self.format, self.geometry());
        let span = geometry.span(1);
        let whole_end = end & !(span - 1);
        if L::ENABLED || format.run_bits() != 0 || va & (span - 1) != 0 || whole_end <= va {
            return va;
        }
        let (first, count) = (table + geometry.index(1, va) * ENTRY_BYTES, (whole_end - va) / span);
        match self.arena.table_mut(first, count) {
            Some(entries) if bulk::append_tables(&format, entries, released) => {
                entries.fill(0);
                whole_end
            }
            _ => va,
        }
    }

    /// Makes holes of what the tables of one run of entries have from `slot` to `end`.
    fn clear_below(&mut self, slot: Slot, end: u64, released: &mut Vec<u64>) -> Result<(), Error> {
        let geometry = self.geometry();
        let (span, unit) = (geometry.span(slot.level), geometry.span(slot.level) << self.format.run_bits());
        let block_bytes = self.block_bytes(slot.level - 1);
        let block = self.format.table_address(slot.entry) & !(block_bytes - 1);
        let is_alone = slot.level == 1 && self.format.run_bits() == 0;
        let is_whole = end - slot.va == unit || is_alone && self.is_rest_empty(block, slot.va, end)?;
        if is_whole {
            self.gather(block, slot.level - 1, released)?;
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
        if is_whole || !is_alone && self.is_empty(block, slot.level - 1)? {
            let va = slot.va & !(unit - 1);
            let first = slot.pa & !((ENTRY_BYTES << self.format.run_bits()) - 1);
            self.write_run(Slot { pa: first, va, ..slot }, |_| 0)?;
            released.push(block);
        }
        Ok(())
    }

    /// Collects the tables below a block of tables.
    fn gather(&self, block: u64, level: u8, released: &mut Vec<u64>) -> Result<(), Error> {
        if level == 0 {
            return Ok(());
        }
        let count = self.block_bytes(level) / ENTRY_BYTES;
        let entries = self.arena.table(block, count).ok_or_else(|| self.outside(block, 0, level))?;
        let most = (self.arena.bytes() / ENTRY_BYTES) as usize;
        if level == 1
            && self.format.run_bits() == 0
            && released.len() < most
            && bulk::append_tables(&self.format, entries, released)
        {
            return Ok(());
        }
        for entry in entries.iter().step_by(1 << self.format.run_bits()) {
            if self.format.kind(level, *entry) == Kind::Table {
                let below = self.format.table_address(*entry);
                if released.len() > most {
                    return Err(Error::NoTree { pa: block, va: 0, level });
                }
                if level > 1 {
                    self.gather(below, level - 1, released)?;
                }
                released.push(below);
            }
        }
        Ok(())
    }

    /// Whether a table of pages has holes only, but for those from `va` to `end`.
    fn is_rest_empty(&self, table: u64, va: u64, end: u64) -> Result<bool, Error> {
        let geometry = self.geometry();
        let entries = self.arena.table(table, geometry.entries(0)).ok_or_else(|| self.outside(table, va, 0))?;
        let first = geometry.index(0, va) as usize;
        let count = ((end - va) >> geometry.shift(0)) as usize;
        let (before, rest) = entries.split_at(first);
        let after = rest.get(count..).unwrap_or_default();
        Ok(bulk::all_holes(&self.format, 0, before) && bulk::all_holes(&self.format, 0, after))
    }

    /// Where the leaves that begin at `va` end: at the first other entry, or at `end`. With a log it is `va`, because
    /// it is told of one after the other.
    fn end_of_leaves(&self, table: u64, level: u8, va: u64, end: u64) -> Result<u64, Error> {
        let mut va = va;
        while !L::ENABLED && va < end && self.format.kind(level, self.slot_in(table, level, va)?.entry) == Kind::Leaf {
            va = end_of(va, self.geometry().span(level)).min(end);
        }
        Ok(va)
    }

    fn is_empty(&self, block: u64, level: u8) -> Result<bool, Error> {
        let entries = self.block_bytes(level) / ENTRY_BYTES;
        let table = self.arena.table(block, entries).ok_or_else(|| self.outside(block, 0, level))?;
        Ok(bulk::all_holes(&self.format, level, table))
    }

    fn clear_entries(&mut self, table: u64, level: u8, va: u64, end: u64) -> Result<(), Error> {
        self.rewrite(table, level, va, end, |_| 0)
    }

    /// Replaces the entries of a range of one table.
    fn rewrite(&mut self, table: u64, level: u8, va: u64, end: u64, new: impl Fn(u64) -> u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let first = table + geometry.index(level, va) * ENTRY_BYTES;
        let count = (end - va) >> geometry.shift(level);
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

    /// Replaces the run of entries that begins at `slot`; `new` gets the index in the run.
    pub(super) fn write_run(&mut self, slot: Slot, new: impl Fn(u64) -> u64) -> Result<(), Error> {
        let span = self.geometry().span(slot.level);
        for index in 0..1u64 << self.format.run_bits() {
            let (pa, va) = (slot.pa + index * ENTRY_BYTES, slot.va + index * span);
            self.write(Slot { pa, va, ..slot }, new(index))?;
        }
        Ok(())
    }

    /// The entry for `va` in one table.
    pub(super) fn slot_in(&self, table: u64, level: u8, va: u64) -> Result<Slot, Error> {
        let geometry = self.geometry();
        let pa = table + geometry.index(level, va) * ENTRY_BYTES;
        let entry = self.arena.read(pa).ok_or_else(|| self.outside(table, geometry.extended(va), level))?;
        Ok(Slot { pa, va, level, entry })
    }

    /// Gives every leaf in a range other attributes, its accessed and dirty state aside, which stays as far
    /// as the new attributes can hold it. Leaves and groups that reach over the ends are split.
    ///
    /// # Errors
    /// As [`Tables::unmap`]; a hole in the range; attributes that the format lacks. Nothing is changed then.
    pub fn protect(&mut self, va: u64, bytes: u64, attributes: Attributes) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        self.whole_runs(va, 0, bytes)?;
        let change = Rewriting::to(&self.format, attributes)?;
        let (table, level) = self.table_around(first, end)?;
        self.all_mapped(table, level, first, end)?;
        self.isolate(first)?;
        self.isolate(end)?;
        self.protect_table(table, level, first, end, &change)?;
        self.invalidate(first, bytes, false);
        Ok(())
    }

    fn protect_table(&mut self, table: u64, level: u8, va: u64, end: u64, change: &Rewriting) -> Result<(), Error> {
        if level == 0 {
            return self.protect_entries(table, level, va, end, change);
        }
        let span = self.geometry().span(level);
        let mut va = va;
        while va < end {
            let next = end_of(va, span).min(end);
            let slot = self.slot_in(table, level, va)?;
            match self.format.kind(level, slot.entry) {
                Kind::Table => {
                    self.protect_table(self.format.table_address(slot.entry), level - 1, va, next, change)?;
                    va = next;
                }
                _ => {
                    // The whole group of a leaf at once: it may have to be broken as one.
                    let group = (span << self.format.run_bits()).max(span << self.format.group_bits(level, slot.entry));
                    let next = self.end_of_leaves(table, level, end_of(va, group).min(end), end)?;
                    self.protect_entries(table, level, va, next, change)?;
                    va = next;
                }
            }
        }
        Ok(())
    }

    fn protect_entries(&mut self, table: u64, level: u8, va: u64, end: u64, change: &Rewriting) -> Result<(), Error> {
        let format = self.format;
        let (keeps, gets) = change.levels.get(usize::from(level)).copied().unwrap_or_default();
        if !L::ENABLED
            && let Some(state) = format.state_bits()
        {
            return self.rewrite(table, level, va, end, move |entry| entry & (keeps | state) | gets);
        }
        let new = move |entry: u64| format.with_state(entry & keeps | gets, format.state(entry));
        if L::ENABLED && self.must_break(table, level, va, end, &new)? {
            // Without a log nobody can see what stood there in between.
            let (first, count) = self.entries(table, level, va, end);
            let old = self.arena.table(first, count).map(Vec::from).unwrap_or_default();
            self.clear_entries(table, level, va, end)?;
            self.invalidate(va, end - va, false);
            let span = self.geometry().span(level);
            for (index, entry) in (0u64..).zip(old) {
                let slot = Slot { pa: first + index * ENTRY_BYTES, va: va + index * span, level, entry: 0 };
                self.write(slot, new(entry))?;
            }
            return Ok(());
        }
        self.rewrite(table, level, va, end, new)
    }

    fn entries(&self, table: u64, level: u8, va: u64, end: u64) -> (u64, u64) {
        let geometry = self.geometry();
        (table + geometry.index(level, va) * ENTRY_BYTES, (end - va) >> geometry.shift(level))
    }

    fn must_break(&self, table: u64, level: u8, va: u64, end: u64, new: &impl Fn(u64) -> u64) -> Result<bool, Error> {
        let (first, count) = self.entries(table, level, va, end);
        let entries = self.arena.table(first, count).ok_or_else(|| self.outside(table, va, level))?;
        Ok(entries.iter().any(|entry| self.format.change(level, *entry, new(*entry)) == Change::Break))
    }

    /// Refuses a range of one table in which something is not mapped.
    fn all_mapped(&self, table: u64, level: u8, va: u64, end: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let (_, entries) = self.entries_around(table, level, va, end)?;
        if level == 0 && bulk::all_alike(&self.format, level, entries) {
            return Ok(());
        }
        let mut at = va;
        for entry in entries {
            let next = end_of(at, geometry.span(level)).min(end);
            match self.format.kind(level, *entry) {
                Kind::Leaf => {}
                Kind::Table if level > 0 => self.all_mapped(self.format.table_address(*entry), level - 1, at, next)?,
                _ => return Err(self.unmapped(geometry.extended(at), level, *entry)),
            }
            at = next;
        }
        Ok(())
    }

    /// Sets the flags that hardware sets when `va` is read or written: in the entry that it walks to, whatever
    /// group that belongs to. Without hardware dirty state a write sets accessed alone.
    ///
    /// # Errors
    /// As [`Tables::translate`].
    pub fn access(&mut self, va: u64, write: bool) -> Result<(), Error> {
        self.translate(va)?;
        let slot = self.slot(self.geometry().resolved(va))?;
        let set = if write { Flags::STATE } else { Flags::ACCESSED };
        let new = self.format.with_state(slot.entry, self.format.state(slot.entry) | set);
        match self.arena.entry_mut(slot.pa) {
            Some(entry) => *entry = new,
            None => return Err(self.outside(slot.pa, va, slot.level)),
        }
        Ok(())
    }

    /// Collects the accessed and dirty flags of the leaves in a range, and clears those in `clear`. `found`
    /// gets the first input address, the bytes and the flags of each leaf; of a contiguous group the flags are
    /// those of all of its entries together, because hardware sets them in any one.
    ///
    /// # Errors
    /// A range that is misaligned or not canonical; tables that cannot be followed.
    pub fn harvest(
        &mut self,
        va: u64,
        bytes: u64,
        clear: Flags,
        mut found: impl FnMut(u64, u64, Flags),
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        // Leaves and groups that reach over the ends are invalidated as a whole, because they were changed so.
        let (mut from, mut to) = (first, end);
        let mut found = |va, bytes, state| {
            let va_resolved = geometry.resolved(va);
            (from, to) = (from.min(va_resolved), to.max(va_resolved + bytes));
            found(va, bytes, state);
        };
        self.harvest_table(self.root, geometry.root_level(), first, end, clear & Flags::STATE, &mut found)?;
        if !clear.is_empty() {
            self.invalidate(from, to - from, false);
        }
        Ok(())
    }

    fn harvest_table(
        &mut self,
        table: u64,
        level: u8,
        va: u64,
        end: u64,
        clear: Flags,
        found: &mut impl FnMut(u64, u64, Flags),
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let span = geometry.span(level);
        let mut va = va;
        while va < end {
            let slot = self.slot_in(table, level, va)?;
            let group_bits = self.format.group_bits(level, slot.entry).max(self.format.run_bits());
            let next = match self.format.kind(level, slot.entry) {
                Kind::Table if level > 0 => {
                    let next = end_of(va, span).min(end);
                    let below = self.format.table_address(slot.entry);
                    self.harvest_table(below, level - 1, va, next, clear, found)?;
                    next
                }
                Kind::Leaf => {
                    // A group is harvested as a whole, even if the range has a part of it only.
                    let group = span << group_bits;
                    let (group_va, next) = (va & !(group - 1), end_of(va, group));
                    let state = self.harvest_group(table, level, group_va, 1 << group_bits, clear)?;
                    found(geometry.extended(group_va), group, state);
                    next
                }
                _ => end_of(va, span),
            };
            va = next.min(end);
        }
        Ok(())
    }

    fn harvest_group(&mut self, table: u64, level: u8, va: u64, count: u64, clear: Flags) -> Result<Flags, Error> {
        let span = self.geometry().span(level);
        let mut state = Flags::empty();
        for index in 0..count {
            let slot = self.slot_in(table, level, va + index * span)?;
            let found = self.format.state(slot.entry);
            state |= found;
            if found.intersects(clear) {
                self.write(slot, self.format.with_state(slot.entry, found - clear))?;
            }
        }
        Ok(state)
    }
}

/// What leaves keep and what they get when their attributes change, by level: the same for all of a level.
struct Rewriting {
    levels: [(u64, u64); LEVELS],
}

impl Rewriting {
    /// To these attributes, but with the accessed and dirty state that each leaf has.
    fn to(format: &impl Format, attributes: Attributes) -> Result<Rewriting, Error> {
        let attributes = Attributes { flags: attributes.flags - Flags::STATE, ..attributes };
        let mut levels = [(0, 0); LEVELS];
        for (level, rewriting) in (0..format.geometry().levels()).zip(&mut levels) {
            if format.has_leaf(level) {
                let gets = format.with_attributes(level, 0, attributes)?;
                *rewriting = (format.with_attributes(level, u64::MAX, attributes)? & !gets, gets);
            }
        }
        Ok(Rewriting { levels })
    }
}
