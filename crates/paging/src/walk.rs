//! Walks tables: a visitor sees every table, leaf and hole of a range, ordered by input address.

use crate::address::{InputAddress, OutputAddress};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;
use crate::tables::{Tables, end_of};

/// What a walk does after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Continues: into the table, or with the next entry.
    Continue,
    /// Skips the contents of this table. There is no visit after its entries either.
    SkipChildren,
    /// Skips the rest of the table that contains this entry.
    SkipSiblings,
    /// Ends the walk.
    Stop,
}

/// The entry that is visited, or a range of holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The physical address of the entry; of the first one, for a hole.
    pub pa: OutputAddress,
    /// The first input address that it translates.
    pub va: InputAddress,
    /// The bytes of input addresses that it translates, including those outside the range that is walked. A hole covers
    /// all adjacent holes of its table, but only those in the range.
    pub bytes: u64,
    /// The level of the table that contains it; 0 is the level of pages.
    pub level: u8,
    /// Its value; of the first one, for a hole.
    pub entry: u64,
}

/// Visits the entries of a walk. By default each method continues the walk.
pub trait Visitor {
    /// Visits an entry that points to a table, before the table.
    fn table(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// Visits the same entry again, after the table.
    fn table_done(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// Visits an entry that maps memory.
    fn leaf(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// Visits adjacent entries that are not valid.
    fn hole(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// Visits an entry that is valid but refused by hardware.
    fn illegal(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }
}

/// How the walk of one table ended.
enum WalkEnd {
    EndOfTable,
    Stopped,
}

struct Walk<'a, F, L, V> {
    tables: &'a Tables<F, L>,
    visitor: &'a mut V,
    /// How many more entries may be read: tables that form a tree have no more entries than the arena.
    entries_left: u64,
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Visits every entry for a range of input addresses.
    ///
    /// # Errors
    /// The range is misaligned or not canonical, a table is outside the arena, or the tables are not a tree. The last
    /// is detected when more entries were read than there are.
    pub fn walk(&self, va: InputAddress, bytes: u64, visitor: &mut impl Visitor) -> Result<(), Error> {
        let (first, end) = self.geometry().range(va, bytes)?;
        self.walk_resolved(first, end, visitor)
    }

    /// Visits every entry; with two halves, those of the lower half first.
    ///
    /// # Errors
    /// As [`Tables::walk`].
    pub fn walk_all(&self, visitor: &mut impl Visitor) -> Result<(), Error> {
        self.walk_resolved(0, 1 << self.geometry().input_bits(), visitor)
    }

    fn walk_resolved(&self, first: u64, end: u64, visitor: &mut impl Visitor) -> Result<(), Error> {
        let entries_left = self.arena().bytes() / ENTRY_BYTES;
        let mut walk = Walk { tables: self, visitor, entries_left };
        walk.table(self.root(), self.geometry().root_level(), first, end).map(|_| ())
    }
}

impl<F: Format, L: Log, V: Visitor> Walk<'_, F, L, V> {
    fn table(&mut self, table: OutputAddress, level: u8, first: u64, end: u64) -> Result<WalkEnd, Error> {
        let geometry = self.tables.geometry();
        let (from, count) =
            (geometry.index(level, first), ((end - 1) >> geometry.shift(level)) - (first >> geometry.shift(level)) + 1);
        let va = geometry.extended(first);
        let entries = self.tables.arena().table(table + from * ENTRY_BYTES, count);
        let entries = entries.ok_or_else(|| self.tables.outside(table, va, level))?;
        self.entries_left = self.entries_left.checked_sub(count).ok_or(Error::NoTree { pa: table, va, level })?;
        let mut index = 0;
        while let Some(entry) = entries.get(index as usize).copied() {
            let start = (first & !(geometry.span(level) - 1)) + index * geometry.span(level);
            let mut node = Node {
                pa: table + (from + index) * ENTRY_BYTES,
                va: geometry.extended(start),
                bytes: geometry.span(level),
                level,
                entry,
            };
            let kind = self.tables.format().kind(level, entry);
            index += 1;
            let action = match kind {
                Kind::Hole => {
                    let holes = entries.iter().skip(index as usize);
                    index += holes.take_while(|entry| self.tables.format().kind(level, **entry) == Kind::Hole).count()
                        as u64;
                    let stop = (first & !(geometry.span(level) - 1)) + index * geometry.span(level);
                    node.va = geometry.extended(start.max(first));
                    node.bytes = stop.min(end) - start.max(first);
                    self.visitor.hole(&node)
                }
                Kind::Leaf => self.visitor.leaf(&node),
                Kind::Table if level > 0 => {
                    let (first, end) = (start.max(first), end_of(start, geometry.span(level)).min(end));
                    match self.below(&node, first, end)? {
                        Some(action) => action,
                        None => return Ok(WalkEnd::Stopped),
                    }
                }
                Kind::Table | Kind::Illegal => self.visitor.illegal(&node),
            };
            match action {
                Action::Continue | Action::SkipChildren => {}
                Action::SkipSiblings => return Ok(WalkEnd::EndOfTable),
                Action::Stop => return Ok(WalkEnd::Stopped),
            }
        }
        Ok(WalkEnd::EndOfTable)
    }

    /// Visits a table; `None` if the walk has ended in it.
    fn below(&mut self, node: &Node, first: u64, end: u64) -> Result<Option<Action>, Error> {
        match self.visitor.table(node) {
            Action::Continue => {}
            action => return Ok(Some(action)),
        }
        let table = self.tables.format().table_address(node.entry);
        match self.table(table, node.level - 1, first, end)? {
            WalkEnd::EndOfTable => Ok(Some(self.visitor.table_done(node))),
            WalkEnd::Stopped => Ok(None),
        }
    }
}
