//! Changes the attributes of ranges.

use alloc::vec::Vec;

use super::slot::{LEVELS, Slot, end_of};
use super::{Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::format::{Change, Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

impl<F: Format, L: Log> Tables<F, L> {
    /// Changes the attributes of every leaf in a range. Accessed and dirty state stays as far as the new attributes can
    /// hold it. Leaves and groups that extend past the ends are split.
    ///
    /// # Errors
    /// As [`Tables::unmap`]; also if the range has a hole or the format lacks the attributes. Nothing is changed then.
    pub fn protect(&mut self, va: InputAddress, bytes: u64, attributes: Attributes) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(va, bytes)?;
        self.check_run_alignment(va, OutputAddress(0), bytes)?;
        let (table, level) = self.table_around(first, end)?;
        let change = Rewriting::to(&self.format, attributes, level)?;
        if self.all_mapped(table, level, first, end)? == Ends::Unknown {
            self.isolate(table, level, first)?;
            self.isolate(table, level, end)?;
        }
        self.protect_table(table, level, first, end, &change)?;
        self.invalidate(first, bytes, false);
        Ok(())
    }

    fn protect_table(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        change: &Rewriting,
    ) -> Result<(), Error> {
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
                    // Processes the whole group of a leaf at once, because it may have to be broken as one.
                    let group = (span << self.format.run_bits()).max(span << self.format.group_bits(level, slot.entry));
                    let next = self.end_of_leaves(table, level, end_of(va, group).min(end), end)?;
                    self.protect_entries(table, level, va, next, change)?;
                    va = next;
                }
            }
        }
        Ok(())
    }

    fn protect_entries(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        change: &Rewriting,
    ) -> Result<(), Error> {
        let format = self.format;
        let (keeps, gets) = change.levels.get(usize::from(level)).copied().unwrap_or_default();
        if !L::ENABLED
            && let Some(state) = format.state_bits()
        {
            let (first, count) = self.entries(table, level, va, end);
            let Some(entries) = self.arena.table_mut(first, count) else {
                return Err(self.outside(table, format.geometry().extended(va), level));
            };
            bulk::rewrite(entries, keeps | state, gets);
            return Ok(());
        }
        self.protect_one_by_one(table, level, va, end, (keeps, gets))
    }

    #[cold]
    fn protect_one_by_one(
        &mut self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        (keeps, gets): (u64, u64),
    ) -> Result<(), Error> {
        let format = self.format;
        let new = move |entry: u64| format.with_state(entry & keeps | gets, format.state(entry));
        if L::ENABLED && self.must_break(table, level, va, end, &new)? {
            // Without a log the intermediate values are not visible.
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

    /// The address and the number of the entries of a table for a range.
    pub(super) fn entries(&self, table: OutputAddress, level: u8, va: u64, end: u64) -> (OutputAddress, u64) {
        let geometry = self.geometry();
        (table + geometry.index(level, va) * ENTRY_BYTES, (end - va) >> geometry.shift(level))
    }

    fn must_break(
        &self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
        new: &impl Fn(u64) -> u64,
    ) -> Result<bool, Error> {
        let (first, count) = self.entries(table, level, va, end);
        let outside = || self.outside(table, self.geometry().extended(va), level);
        let entries = self.arena.table(first, count).ok_or_else(outside)?;
        Ok(entries.iter().any(|entry| self.format.change(level, *entry, new(*entry)) == Change::Break))
    }

    /// Checks that everything in a range of one table is mapped, and returns whether leaves may extend past its ends.
    fn all_mapped(&self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<Ends, Error> {
        let geometry = self.geometry();
        let (_, entries) = self.entries_around(table, level, va, end)?;
        let (mut remaining, mut at) = (entries, va);
        // Entries that software writes as one are longer than a single entry shows.
        let mut ends = if self.format.run_bits() == 0 { Ends::Inside } else { Ends::Unknown };
        let plain = bulk::Alike::of(&self.format, level);
        while let [entry, rest @ ..] = remaining {
            let alike = plain.count(remaining);
            if alike > 0 {
                let next = (at & !(geometry.span(level) - 1)) + ((alike as u64) << geometry.shift(level));
                if at & (geometry.span(level) - 1) != 0 || next > end {
                    ends = Ends::Unknown;
                }
                (remaining, at) = (&remaining[alike..], next);
                continue;
            }
            let next = end_of(at, geometry.span(level)).min(end);
            let found = match self.format.kind(level, *entry) {
                Kind::Leaf => Ends::Unknown,
                Kind::Table if level > 0 => self.all_mapped(self.format.table_address(*entry), level - 1, at, next)?,
                _ => return Err(self.unmapped(geometry.extended(at), level, *entry)),
            };
            ends = ends.max(found);
            (remaining, at) = (rest, next);
        }
        Ok(ends)
    }
}

/// Where the leaves of a range begin and end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    /// Inside the range.
    Inside,
    /// Possibly outside the range too.
    Unknown,
}

/// The bits that leaves keep and the bits that they get when their attributes change: one pair for each level.
struct Rewriting {
    levels: [(u64, u64); LEVELS],
}

impl Rewriting {
    /// A change to these attributes that keeps each leaf's accessed and dirty state, for levels up to `top`.
    fn to(format: &impl Format, attributes: Attributes, top: u8) -> Result<Rewriting, Error> {
        let attributes = Attributes { flags: attributes.flags - Flags::STATE, ..attributes };
        let mut levels = [(0, 0); LEVELS];
        for (level, rewriting) in (0..=top).zip(&mut levels) {
            if format.has_leaf(level) {
                let gets = format.with_attributes(level, 0, attributes)?;
                *rewriting = (format.with_attributes(level, u64::MAX, attributes)? & !gets, gets);
            }
        }
        Ok(Rewriting { levels })
    }
}
