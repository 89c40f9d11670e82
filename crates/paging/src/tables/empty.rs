//! Empty tables: unmapping that leaves them, making them, and giving them back. An operating system keeps tables when memory
//! goes and gives them back when the addresses do.

use super::slot::end_of;
use super::{Slot, Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::arena::Released;
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

/// Which empty tables are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Those for any address of this range: where it begins.
    pub va: InputAddress,
    /// Its bytes.
    pub bytes: u64,
    /// And for no address outside of this range, which holds the other: where it begins.
    pub room: InputAddress,
    /// Its bytes.
    pub room_bytes: u64,
    /// Of the levels up to this one, where 0 is that of pages.
    pub top: u8,
}

impl Freed {
    /// All that are for addresses of a range alone.
    pub fn within(va: InputAddress, bytes: u64) -> Freed {
        Freed { va, bytes, room: va, room_bytes: bytes, top: u8::MAX }
    }
}

/// A run of [`Tables::free_empty_tables`], in resolved addresses.
struct Freeing {
    room: u64,
    room_end: u64,
    top: u8,
    released: Released,
    /// What the tables that were given back were for: the first address and the end.
    first: u64,
    end: u64,
}

impl Freeing {
    fn new((room, room_end): (u64, u64), top: u8, released: Released) -> Freeing {
        Freeing { room, room_end, top, released, first: u64::MAX, end: 0 }
    }

    fn add(&mut self, block: OutputAddress, va: u64, end: u64) {
        self.released.add(block);
        (self.first, self.end) = (self.first.min(va), self.end.max(end));
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Unmaps whatever is mapped in a range, as [`Tables::unmap`] does, but keeps the tables, empty or not.
    ///
    /// # Errors
    /// As [`Tables::unmap`].
    pub fn unmap_leaves(&mut self, va: InputAddress, bytes: u64) -> Result<(), Error> {
        let (first, end) = self.geometry().range(va, bytes)?;
        self.whole_runs(va, OutputAddress(0), bytes)?;
        let (table, level) = self.table_around(first, end)?;
        self.isolate(table, level, first)?;
        self.isolate(table, level, end)?;
        self.clear_leaves(table, level, first, end)?;
        self.invalidate(first, bytes, false);
        Ok(())
    }

    /// Makes holes of the leaves in a range of one table and of those below it; no leaf reaches over the ends.
    fn clear_leaves(&mut self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<(), Error> {
        if level == 0 {
            return self.clear_entries(table, level, va, end);
        }
        let span = self.geometry().span(level);
        let mut va = va;
        while va < end {
            let next = end_of(va, span).min(end);
            let slot = self.slot_in(table, level, va)?;
            va = match self.format.kind(level, slot.entry) {
                Kind::Hole => next,
                Kind::Table => {
                    self.clear_leaves(self.format.table_address(slot.entry), level - 1, va, next)?;
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

    /// Makes the tables that are missing on the way to an address, down to that of the level `bottom`, where 0 is that of
    /// pages. Below a leaf there are none.
    ///
    /// # Errors
    /// An address that is not canonical; an arena that is full.
    pub fn make_tables(&mut self, va: InputAddress, bottom: u8) -> Result<(), Error> {
        let geometry = self.geometry();
        let page = va.aligned_down(geometry.page_bytes());
        let (resolved, _) = geometry.range(page, geometry.page_bytes())?;
        loop {
            let slot = self.slot(resolved)?;
            if slot.level <= bottom || self.format.kind(slot.level, slot.entry) != Kind::Hole {
                return Ok(());
            }
            self.add_tables(slot)?;
        }
    }

    /// Gives back tables that map nothing. The root stays.
    ///
    /// # Errors
    /// A range that is misaligned or not canonical; tables that cannot be followed.
    pub fn free_empty_tables(&mut self, freed: &Freed) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(freed.va, freed.bytes)?;
        let room = geometry.range(freed.room, freed.room_bytes)?;
        let mut freeing = Freeing::new(room, freed.top, self.arena.collection());
        self.free_below(self.root, geometry.root_level(), (first, end), &mut freeing)?;
        self.finish(freeing);
        Ok(())
    }

    /// Gives back the tables, all of them empty, in whose place leaves are about to stand in a range of one table.
    pub(super) fn free_tables_for(&mut self, table: OutputAddress, level: u8, va: u64, end: u64) -> Result<(), Error> {
        let (first, count) = self.entries(table, level, va, end);
        if level == 0 || self.arena.all(first, count, bulk::all_zero) == Some(true) {
            return Ok(());
        }
        let mut freeing = Freeing::new((va, end), level, self.arena.collection());
        self.free_below(table, level, (va, end), &mut freeing)?;
        self.finish(freeing);
        Ok(())
    }

    /// Gives back what was collected.
    fn finish(&mut self, freeing: Freeing) {
        if freeing.released.count != 0 {
            self.invalidate(freeing.first, freeing.end - freeing.first, true);
        }
        self.release(freeing.released);
    }

    /// Collects the empty tables below one.
    fn free_below(
        &mut self,
        table: OutputAddress,
        level: u8,
        (va, end): (u64, u64),
        freeing: &mut Freeing,
    ) -> Result<(), Error> {
        let Some(below) = level.checked_sub(1) else { return Ok(()) };
        let unit = self.geometry().span(level) << self.format.run_bits();
        let mut va = va;
        while va < end {
            let (first, past) = (va & !(unit - 1), end_of(va, unit));
            let next = past.min(end);
            let slot = self.slot_in(table, level, va)?;
            if self.format.kind(level, slot.entry) == Kind::Table {
                self.free_below_run(slot, (va, next), freeing)?;
                let block = self.format.table_address(slot.entry).aligned_down(self.block_bytes(below));
                let is_alone = freeing.room <= first && past <= freeing.room_end;
                if below <= freeing.top && is_alone && self.is_empty(block, below)? {
                    freeing.add(block, first, past);
                    let pa = slot.pa.aligned_down(ENTRY_BYTES << self.format.run_bits());
                    self.write_run(Slot { pa, va: first, ..slot }, |_| 0)?;
                }
            }
            va = next;
        }
        Ok(())
    }

    /// Collects the empty tables below those of one run of entries, from `slot` on.
    fn free_below_run(&mut self, slot: Slot, (va, end): (u64, u64), freeing: &mut Freeing) -> Result<(), Error> {
        let geometry = self.geometry();
        let mut va = va;
        while va < end {
            let next = end_of(va, geometry.span(slot.level)).min(end);
            let index = geometry.index(slot.level, va) - geometry.index(slot.level, slot.va);
            let entry = self.arena.read(slot.pa + index * ENTRY_BYTES).unwrap_or_default();
            self.free_below(self.format.table_address(entry), slot.level - 1, (va, next), freeing)?;
            va = next;
        }
        Ok(())
    }
}
