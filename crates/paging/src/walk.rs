//! Walking tables: a visitor sees every table, leaf and hole of a range, in order of input addresses.

use crate::address::{InputAddress, OutputAddress};
use crate::error::Error;
use crate::format::{Format, Kind};
use crate::geometry::ENTRY_BYTES;
use crate::log::Log;
use crate::tables::{Tables, end_of};

/// What a walk does after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Goes on: into a table, or to the next entry.
    Continue,
    /// Does not look into this table; it is not visited after its entries either.
    SkipChildren,
    /// Looks at nothing more of the table that this entry is in.
    SkipSiblings,
    /// Ends.
    Stop,
}

/// What is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The physical address of the entry; of the first one, for a hole.
    pub pa: OutputAddress,
    /// The first input address that it is for.
    pub va: InputAddress,
    /// How many bytes of input addresses it is for, also outside the range that is walked. A hole has those of
    /// all neighbouring holes of its table, and those of the range only.
    pub bytes: u64,
    /// The level of the table that it is in.
    pub level: u8,
    /// Its value; of the first one, for a hole.
    pub entry: u64,
}

/// Sees the entries of a walk. What is not overridden is passed over.
pub trait Visitor {
    /// An entry that points to a table, before the table.
    fn table(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// The same entry, after the table.
    fn table_done(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// An entry that maps memory.
    fn leaf(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// Entries that are not valid.
    fn hole(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }

    /// An entry that is valid and that hardware refuses.
    fn illegal(&mut self, node: &Node) -> Action {
        let _ = node;
        Action::Continue
    }
}

/// How the walk of one table ended.
enum Ended {
    AtItsEnd,
    Stopped,
}

struct Walk<'a, F, L, V> {
    tables: &'a Tables<F, L>,
    visitor: &'a mut V,
    /// Entries that may still be read: tables that are a tree have no more than the arena.
    entries_left: u64,
}

impl<F: Format, L: Log> Tables<F, L> {
    /// Shows every entry for a range of input addresses to `visitor`.
    ///
    /// # Errors
    /// A range that is misaligned or not canonical; a table outside the arena; tables that are no tree, as soon
    /// as more entries were read than there are.
    pub fn walk(&self, va: InputAddress, bytes: u64, visitor: &mut impl Visitor) -> Result<(), Error> {
        let (first, end) = self.geometry().range(va, bytes)?;
        self.walk_resolved(first, end, visitor)
    }

    /// Shows every entry to `visitor`; with two halves, those of the lower half first.
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
    fn table(&mut self, table: OutputAddress, level: u8, first: u64, end: u64) -> Result<Ended, Error> {
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
                        None => return Ok(Ended::Stopped),
                    }
                }
                Kind::Table | Kind::Illegal => self.visitor.illegal(&node),
            };
            match action {
                Action::Continue | Action::SkipChildren => {}
                Action::SkipSiblings => return Ok(Ended::AtItsEnd),
                Action::Stop => return Ok(Ended::Stopped),
            }
        }
        Ok(Ended::AtItsEnd)
    }

    /// Visits a table; `None` if the walk has ended in it.
    fn below(&mut self, node: &Node, first: u64, end: u64) -> Result<Option<Action>, Error> {
        match self.visitor.table(node) {
            Action::Continue => {}
            action => return Ok(Some(action)),
        }
        let table = self.tables.format().table_address(node.entry);
        match self.table(table, node.level - 1, first, end)? {
            Ended::AtItsEnd => Ok(Some(self.visitor.table_done(node))),
            Ended::Stopped => Ok(None),
        }
    }
}
