//! Giving ranges other attributes.

use alloc::vec::Vec;

use super::map::end_of;
use super::{LEVELS, Slot, Tables, bulk};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::format::{Change, Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
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
