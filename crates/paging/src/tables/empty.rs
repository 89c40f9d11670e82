//! Empty tables: unmapping without releasing them, creating them, and releasing them. An operating system keeps tables
//! when memory is unmapped and releases them when the address range is freed.

use super::slot::end_of;
use super::{Slot, Tables, bulk};
use crate::address::{InputAddress, OutputAddress};
use crate::arena::ReleasedTables;
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;

/// Which empty tables are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeRequest {
    /// The first address of a range. Only tables that serve an address in this range are released.
    pub va: InputAddress,
    /// The length of the range in bytes.
    pub bytes: u64,
    /// The first address of an enclosing range. Only tables that serve no address outside the enclosing range are released.
    pub enclosing_va: InputAddress,
    /// The length of the enclosing range in bytes.
    pub enclosing_bytes: u64,
    /// The highest level of the tables that are released; 0 is the level of pages.
    pub top: u8,
}

impl FreeRequest {
    /// All tables that only serve addresses of a range.
    pub fn within(va: InputAddress, bytes: u64) -> FreeRequest {
        FreeRequest { va, bytes, enclosing_va: va, enclosing_bytes: bytes, top: u8::MAX }
    }
}

/// One call of [`Tables::free_empty_tables`], with resolved addresses.
struct Freeing {
    enclosing_start: u64,
    enclosing_end: u64,
    top: u8,
    released: ReleasedTables,
    /// The range of addresses that the released tables served: the first address and the end.
    first: u64,
    end: u64,
}

impl Freeing {
    fn new((enclosing_start, enclosing_end): (u64, u64), top: u8, released: ReleasedTables) -> Freeing {
        Freeing { enclosing_start, enclosing_end, top, released, first: u64::MAX, end: 0 }
    }

    fn add(&mut self, block: OutputAddress, va: u64, end: u64) {
        self.released.add(block);
        (self.first, self.end) = (self.first.min(va), self.end.max(end));
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Unmaps everything in a range, as [`Tables::unmap`] does, but keeps the tables even if they are empty.
    ///
    /// # Errors
    /// As [`Tables::unmap`].
    pub fn unmap_leaves(&mut self, va: InputAddress, bytes: u64) -> Result<(), Error> {
        let (first, end) = self.geometry().range(va, bytes)?;
        self.check_run_alignment(va, OutputAddress(0), bytes)?;
        let (table, level) = self.table_around(first, end)?;
        self.isolate(table, level, first)?;
        self.isolate(table, level, end)?;
        self.clear_leaves(table, level, first, end)?;
        self.invalidate(first, bytes, false);
        Ok(())
    }

    /// Turns the leaves of a range of one table, and of those below it, into holes. No leaf extends past the ends.
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

    /// Creates the missing tables on the path to an address, down to the level `bottom`; 0 is the level of pages. It
    /// creates none below a leaf.
    ///
    /// # Errors
    /// The address is not canonical, or the arena is full.
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

    /// Releases tables that map nothing. The root stays.
    ///
    /// # Errors
    /// The range is misaligned or not canonical, or tables cannot be followed.
    pub fn free_empty_tables(&mut self, request: &FreeRequest) -> Result<(), Error> {
        let geometry = self.geometry();
        let (first, end) = geometry.range(request.va, request.bytes)?;
        let enclosing = geometry.range(request.enclosing_va, request.enclosing_bytes)?;
        let mut freeing = Freeing::new(enclosing, request.top, self.arena.collection());
        self.free_below(self.root, geometry.root_level(), (first, end), &mut freeing)?;
        self.finish(freeing);
        Ok(())
    }

    /// Releases the tables that leaves are about to replace in a range of one table. All of these tables are empty.
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

    /// Invalidates and releases the collected tables.
    fn finish(&mut self, freeing: Freeing) {
        if freeing.released.count != 0 {
            self.invalidate(freeing.first, freeing.end - freeing.first, true);
        }
        self.release(freeing.released);
    }

    /// Collects the empty tables below one table.
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
                let serves_only_enclosing = freeing.enclosing_start <= first && past <= freeing.enclosing_end;
                if below <= freeing.top && serves_only_enclosing && self.is_empty(block, below)? {
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
