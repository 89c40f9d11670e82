//! Maps a range with the largest possible leaves.

use alloc::string::String;

use super::mapping::Mapping;
use super::slot::{LEVELS, Slot, end_of};
use super::{Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::{Event, Log};

/// The leaves of a mapping without their addresses, by level; `None` at levels that are not used.
struct Leaves {
    single: [Option<u64>; LEVELS],
    grouped: [Option<u64>; LEVELS],
}

impl Leaves {
    const NONE: Leaves = Leaves { single: [None; LEVELS], grouped: [None; LEVELS] };

    /// Adds the leaves that a mapping can have. It works in place because a value returned in a `Result` is copied.
    fn add(&mut self, format: &impl Format, mapping: &Mapping) -> Result<(), Error> {
        let Mapping { attributes, sizes, bytes, .. } = *mapping;
        let (geometry, run_bits) = (format.geometry(), format.run_bits());
        let limit = sizes.largest_bytes.min(bytes);
        let levels = (0..geometry.levels()).take_while(|level| geometry.span(*level) << run_bits <= limit);
        for level in levels.filter(|level| format.has_leaf(*level)) {
            let at = usize::from(level);
            self.single[at] = Some(format.leaf(level, attributes, false)?);
            let group_bits = format.group_bits_at(level);
            // Entries that software writes as one form a group, whatever the request says.
            if group_bits != 0 && (sizes.contiguous || run_bits == group_bits) {
                self.grouped[at] = Some(format.leaf(level, attributes, true)?);
            }
        }
        if self.single.iter().all(Option::is_none) {
            return Err(Error::NoLeafSize { bytes: sizes.largest_bytes, offered: offered(format) });
        }
        Ok(())
    }
}

/// The sizes of leaves and contiguous groups of a format, as text.
fn offered(format: &impl Format) -> String {
    let geometry = format.geometry();
    let levels = (0..geometry.levels()).filter(|level| format.has_leaf(*level));
    let sizes = levels.map(|level| alloc::format!("{:#x}", geometry.span(level) << format.run_bits()));
    sizes.collect::<alloc::vec::Vec<_>>().join(", ")
}

/// A range of input addresses and the offset of its memory.
#[derive(Clone, Copy)]
struct OffsetRange {
    va: u64,
    end: u64,
    /// Output address minus input address.
    offset: u64,
}

impl OffsetRange {
    fn pa(self) -> OutputAddress {
        OutputAddress(self.va.wrapping_add(self.offset))
    }

    /// Whether input and output address can both be multiples of `bytes` at the same time.
    fn is_congruent(self, bytes: u64) -> bool {
        self.offset & (bytes - 1) == 0
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Maps a range with the largest leaves that its alignment, its length and its `sizes` allow.
    ///
    /// # Errors
    /// The range is misaligned, too large or not canonical; the format lacks the attributes or sizes; part of the range
    /// is already mapped; or the arena is full. Nothing is mapped then.
    pub fn map(&mut self, mapping: &Mapping) -> Result<(), Error> {
        let geometry = self.geometry();
        let Mapping { va, pa, bytes, .. } = *mapping;
        let (first, end) = geometry.range(va, bytes)?;
        geometry.output(pa, bytes)?;
        self.check_run_alignment(va, pa, bytes)?;
        let mut leaves = Leaves::NONE;
        leaves.add(&self.format, mapping)?;
        let (table, level) = self.table_around(first, end)?;
        if let Some(slot) = self.first_mapped(table, level, first, end)? {
            return Err(Error::Overlap {
                va: geometry.extended(slot.va.max(first)),
                level: slot.level,
                entry: slot.entry,
            });
        }
        let mut offset_range = OffsetRange { va: first, end, offset: pa.0.wrapping_sub(first) };
        if let Err(error) = self.map_table(table, level, &mut offset_range, &leaves) {
            // The range also includes the next unit, so that the tables that were already created for it are released too.
            let unit = geometry.page_bytes() << self.format.run_bits();
            self.unmap(va, (offset_range.va - first + unit).min(bytes))?;
            return Err(error);
        }
        Ok(())
    }

    /// Checks that a range is aligned to the pages of software that writes several hardware entries as one.
    pub(super) fn check_run_alignment(&self, va: InputAddress, pa: OutputAddress, bytes: u64) -> Result<(), Error> {
        let to = self.geometry().page_bytes() << self.format.run_bits();
        let found = [("input address", va.0), ("output address", pa.0), ("length", bytes)];
        match found.into_iter().find(|(_, value)| value & (to - 1) != 0) {
            Some((what, value)) => Err(Error::Misaligned { what, value, to }),
            None => Ok(()),
        }
    }

    /// Maps the part of the range that one table covers, and removes that part from `offset_range`.
    fn map_table(
        &mut self,
        table: OutputAddress,
        level: u8,
        offset_range: &mut OffsetRange,
        leaves: &Leaves,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let (span, unit) = (geometry.span(level), geometry.span(level) << self.format.run_bits());
        let table_end = end_of(offset_range.va, span * geometry.entries(level)).min(offset_range.end);
        let single = leaves.single.get(usize::from(level)).copied().flatten();
        while offset_range.va < table_end {
            let aligned_end = table_end & !(unit - 1);
            let fits =
                offset_range.is_congruent(unit) && offset_range.va & (unit - 1) == 0 && offset_range.va < aligned_end;
            match single {
                Some(leaf) if fits => {
                    let part = OffsetRange { end: aligned_end, ..*offset_range };
                    self.free_tables_for(table, level, part.va, part.end)?;
                    self.fill(table, level, part, leaf, leaves.grouped[usize::from(level)])?;
                    offset_range.va = aligned_end;
                }
                _ => {
                    let end = core::mem::replace(&mut offset_range.end, end_of(offset_range.va, span).min(table_end));
                    let mapped = self.map_child(table, level, offset_range, leaves);
                    offset_range.end = end;
                    mapped?;
                }
            }
        }
        Ok(())
    }

    /// Maps the part of the range that its first entry spans, in the table below that entry.
    fn map_child(
        &mut self,
        table: OutputAddress,
        level: u8,
        offset_range: &mut OffsetRange,
        leaves: &Leaves,
    ) -> Result<(), Error> {
        let slot = self.slot_in(table, level, offset_range.va)?;
        let child = match self.format.kind(level, slot.entry) {
            Kind::Table => self.format.table_address(slot.entry),
            Kind::Hole if level > 0 => {
                if self.map_new_child(slot, *offset_range, leaves)? {
                    offset_range.va = offset_range.end;
                    return Ok(());
                }
                self.add_tables(slot)?;
                let entry = self.arena.read(slot.pa).unwrap_or_default();
                self.format.table_address(entry)
            }
            _ => return Err(self.unmapped(self.geometry().extended(offset_range.va), level, slot.entry)),
        };
        match leaves.single[0] {
            // A mapping consists of whole pages.
            Some(leaf) if level == 1 => {
                self.fill(child, 0, *offset_range, leaf, leaves.grouped[0])?;
                offset_range.va = offset_range.end;
                Ok(())
            }
            _ => self.map_table(child, level - 1, offset_range, leaves),
        }
    }

    /// As [`Tables::map_child`], if `slot` is a hole and leaves of the next level fit: each entry of the new table is
    /// written once. Returns whether this was possible.
    fn map_new_child(&mut self, slot: Slot, offset_range: OffsetRange, leaves: &Leaves) -> Result<bool, Error> {
        let (geometry, below) = (self.geometry(), slot.level - 1);
        let Some(leaf) = leaves.single[usize::from(below)] else { return Ok(false) };
        let unit = geometry.span(below);
        let fits = offset_range.is_congruent(unit) && (offset_range.va | offset_range.end) & (unit - 1) == 0;
        // A log receives entries one by one, and a run of entries has a run of tables.
        if L::ENABLED || self.format.run_bits() != 0 || !fits {
            return Ok(false);
        }
        let bytes = geometry.page_bytes();
        let (child, is_new) = self.arena.allocate_stale(bytes, bytes)?;
        if !is_new && offset_range.end - offset_range.va != geometry.span(slot.level) {
            let (first, count) = self.entries(child, below, offset_range.va, offset_range.end);
            let past = first + count * ENTRY_BYTES;
            if first != child {
                self.arena.clear(child, (first - child) / ENTRY_BYTES);
            }
            if past != child + bytes {
                self.arena.clear(past, (child + bytes - past) / ENTRY_BYTES);
            }
        }
        self.fill(child, below, offset_range, leaf, leaves.grouped[usize::from(below)])?;
        self.write(slot, self.format.table(child))?;
        Ok(true)
    }

    /// Fills a range of one table with leaves; those that can form groups become groups if `grouped` is given.
    #[inline]
    fn fill(
        &mut self,
        table: OutputAddress,
        level: u8,
        offset_range: OffsetRange,
        leaf: u64,
        grouped: Option<u64>,
    ) -> Result<(), Error> {
        let Some(grouped) = grouped else { return self.fill_alike(table, level, offset_range, leaf, false) };
        let group = self.geometry().span(level) << self.format.group_bits_at(level);
        let OffsetRange { va, end, offset } = offset_range;
        let (from, to) = (va.next_multiple_of(group).min(end), end & !(group - 1));
        if from >= to || !offset_range.is_congruent(group) {
            return self.fill_alike(table, level, offset_range, leaf, false);
        }
        self.fill_alike(table, level, OffsetRange { va, end: from, offset }, leaf, false)?;
        self.fill_alike(table, level, OffsetRange { va: from, end: to, offset }, grouped, true)?;
        self.fill_alike(table, level, OffsetRange { va: to, end, offset }, leaf, false)
    }

    fn fill_alike(
        &mut self,
        table: OutputAddress,
        level: u8,
        offset_range: OffsetRange,
        leaf: u64,
        grouped: bool,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let count = (offset_range.end - offset_range.va) >> geometry.shift(level);
        if count == 0 {
            return Ok(());
        }
        let first = table + geometry.index(level, offset_range.va) * ENTRY_BYTES;
        let Some(entries) = self.arena.table_mut(first, count) else {
            return Err(self.outside(table, geometry.extended(offset_range.va), level));
        };
        let span = geometry.span(level);
        bulk::fill(&self.format, level, entries, leaf, offset_range.pa(), grouped);
        if L::ENABLED {
            for (index, new) in (0u64..).zip(entries.iter().copied()) {
                let va = geometry.extended(offset_range.va + index * span);
                self.log.event(Event::Write { pa: first + index * ENTRY_BYTES, va, level, old: 0, new });
            }
        }
        Ok(())
    }

    /// Allocates empty tables for the run of entries around `slot` and points the entries to them.
    pub(super) fn add_tables(&mut self, slot: Slot) -> Result<(), Error> {
        let below = slot.level - 1;
        let bytes = self.block_bytes(below);
        let block = self.arena.allocate(bytes, bytes)?;
        self.link_tables(slot, block)
    }

    /// Points the run of entries around `slot` to the tables of `block`, in order.
    pub(super) fn link_tables(&mut self, slot: Slot, block: OutputAddress) -> Result<(), Error> {
        let geometry = self.geometry();
        let run = 1u64 << self.format.run_bits();
        let first = slot.pa.aligned_down(run * ENTRY_BYTES);
        let va = slot.va & !(geometry.span(slot.level) * run - 1);
        for index in 0..run {
            let table = self.format.table(block + index * geometry.table_bytes(slot.level - 1));
            let (pa, va) = (first + index * ENTRY_BYTES, va + index * geometry.span(slot.level));
            self.write(Slot { pa, va, ..slot }, table)?;
        }
        Ok(())
    }

    /// The lowest table that covers more than a range, and its level; the root covers any range.
    pub(super) fn table_around(&self, va: u64, end: u64) -> Result<(OutputAddress, u8), Error> {
        let geometry = self.geometry();
        let (mut table, mut level) = (self.root, geometry.root_level());
        while level > 0 && (va ^ (end - 1)) >> geometry.shift(level) == 0 && end - va != geometry.span(level) {
            let entry = self.slot_in(table, level, va)?.entry;
            if self.format.kind(level, entry) != Kind::Table {
                break;
            }
            (table, level) = (self.format.table_address(entry), level - 1);
        }
        Ok((table, level))
    }

    /// The first entry in a range of one table that is neither a hole nor a table.
    fn first_mapped(&self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<Option<Slot>, Error> {
        let geometry = self.geometry();
        let (first, mut entries) = self.entries_around(table, level, va, end)?;
        let (mut pa, mut va) = (first, va);
        if self.arena.all(first, entries.len() as u64, bulk::all_zero) == Some(true) {
            return Ok(None);
        }
        while let [entry, rest @ ..] = entries {
            let next = end_of(va, geometry.span(level)).min(end);
            match self.format.kind(level, *entry) {
                Kind::Hole => {}
                Kind::Table if level > 0 => {
                    let found = self.first_mapped(self.format.table_address(*entry), level - 1, va, next)?;
                    if found.is_some() || bulk::all_zero(rest) {
                        return Ok(found);
                    }
                }
                _ => return Ok(Some(Slot { pa, va: va & !(geometry.span(level) - 1), level, entry: *entry })),
            }
            (entries, pa, va) = (rest, pa + ENTRY_BYTES, next);
        }
        Ok(None)
    }

    /// The entries of one table that cover a range or a part of it, and the address at which they begin.
    pub(super) fn entries_around(
        &self,
        table: OutputAddress,
        level: u8,
        va: u64,
        end: u64,
    ) -> Result<(OutputAddress, &[u64]), Error> {
        let geometry = self.geometry();
        let first = table + geometry.index(level, va) * ENTRY_BYTES;
        let count = ((end - 1) >> geometry.shift(level)) - (va >> geometry.shift(level)) + 1;
        match self.arena.table(first, count) {
            Some(entries) => Ok((first, entries)),
            None => Err(self.outside(table, geometry.extended(va), level)),
        }
    }
}
