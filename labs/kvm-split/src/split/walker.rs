//! The generic walker: it visits every entry of a range, top down, and calls a visitor as its flags require.
//!
//! It differs from a plain recursion in one point that matters to splits: after a callback it reads the entry again,
//! and descends into a table that the callback may have linked.

use bitflags::bitflags;

use super::counters::Counters;
use super::error::Error;
use paging::Log;
use paging::Tables;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::{Format, Kind};
use paging::{ENTRY_BYTES, Geometry};
use paging::{InputAddress, OutputAddress};

bitflags! {
    /// For which entries a walk calls its visitor, and which it does not even read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// Call for every entry that is not a table, including holes.
        const LEAF = 1 << 0;
        /// Call for a table before its entries.
        const TABLE_PRE = 1 << 1;
        /// Call for a table after its entries.
        const TABLE_POST = 1 << 2;
        /// Never read a table of pages (KVM_PGTABLE_WALK_SKIP_LEVEL3 of the series).
        const SKIP_PAGES = 1 << 3;
    }
}

/// Why the visitor is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The entry is not a table.
    Leaf,
    /// The entry is a table whose entries come next.
    TablePre,
    /// The entry is a table whose entries are done.
    TablePost,
}

/// How a walk continues after a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// With the next entry, or with the entries of a table that is linked now.
    Entry,
    /// With the next entry in the same table, skipping everything below this one.
    SkipChildren,
    /// With the next table, skipping the rest of this one.
    SkipSiblings,
}

/// The entry that is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Its physical address.
    pub pa: OutputAddress,
    /// The first input address that it translates.
    pub va: InputAddress,
    /// Its level; 0 is the level of pages.
    pub level: u8,
    /// Its value before the callback.
    pub entry: u64,
}

/// The callback of a walk.
pub trait Visitor<L: Log> {
    /// Processes an entry, and may change it.
    ///
    /// # Errors
    /// Any error ends the walk.
    fn visit(&mut self, walk: &mut Walk<'_, L>, visited: &Visited, why: Visit) -> Result<Next, Error>;
}

/// A walk in progress: the tables, which visitors may change, and the counts.
#[derive(Debug)]
pub struct Walk<'a, L> {
    /// The tables that are walked.
    pub tables: &'a mut Tables<Arm64Stage2, L>,
    /// The counts so far.
    pub counters: &'a mut Counters,
    geometry: Geometry,
    flags: Flags,
    /// The next (resolved) input address. At stage 2 all higher bits are zero, so it is the address itself.
    va: u64,
    end: u64,
}

/// Walks the entries for a range of input addresses.
///
/// # Errors
/// The range is misaligned or not canonical, a table is outside the arena, or the visitor failed.
pub fn walk<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    va: InputAddress,
    bytes: u64,
    flags: Flags,
    visitor: &mut impl Visitor<L>,
    counters: &mut Counters,
) -> Result<(), Error> {
    let geometry = tables.geometry();
    let (va, end) = geometry.range(va, bytes)?;
    let (root, level) = (tables.root(), geometry.root_level());
    counters.walks += 1;
    Walk { tables, counters, geometry, flags, va, end }.table(root, level, visitor)
}

/// Walks a table that is not linked to the root, for the resolved addresses `va` to `end`.
pub(super) fn walk_unlinked<L: Log>(
    walk: &mut Walk<'_, L>,
    (table, level): (OutputAddress, u8),
    (va, end): (u64, u64),
    visitor: &mut impl Visitor<L>,
    counters: &mut Counters,
) -> Result<(), Error> {
    let geometry = walk.geometry;
    Walk { tables: &mut *walk.tables, counters, geometry, flags: Flags::LEAF, va, end }.table(table, level, visitor)
}

impl<L: Log> Walk<'_, L> {
    /// Walks one table. The concatenated tables of the root are adjacent, so they are one table here.
    fn table(&mut self, table: OutputAddress, level: u8, visitor: &mut impl Visitor<L>) -> Result<(), Error> {
        let first = table + self.geometry.index(level, self.va) * ENTRY_BYTES;
        let end = table + self.geometry.table_bytes(level);
        let mut pa = first;
        let mut result = Ok(());
        while pa < end && self.va < self.end {
            let next = self.entry(pa, level, visitor);
            pa += ENTRY_BYTES;
            match next {
                Ok(Next::Entry | Next::SkipChildren) => {}
                Ok(Next::SkipSiblings) => {
                    let left = (end - pa) / ENTRY_BYTES;
                    self.va = (self.va + left * self.geometry.span(level)).min(self.end);
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.counters.entries_read += (pa - first) / ENTRY_BYTES;
        self.counters.scanned(first, pa);
        result
    }

    #[inline(always)]
    fn entry(&mut self, pa: OutputAddress, level: u8, visitor: &mut impl Visitor<L>) -> Result<Next, Error> {
        let span = self.geometry.span(level);
        let va = self.va & !(span - 1);
        let mut visited = Visited { pa, va: InputAddress(va), level, entry: self.read(pa, level)? };
        let mut next = Next::Entry;
        let (wanted, why) =
            if self.is_table(&visited) { (Flags::TABLE_PRE, Visit::TablePre) } else { (Flags::LEAF, Visit::Leaf) };
        if self.flags.contains(wanted) {
            self.counters.callbacks += 1;
            next = visitor.visit(self, &visited, why)?;
            visited.entry = self.read(pa, level)?;
        }
        let skips_pages = level == 1 && self.flags.contains(Flags::SKIP_PAGES);
        if !self.is_table(&visited) || skips_pages || next != Next::Entry {
            self.va = va + span;
            return Ok(next);
        }
        self.children(&visited, visitor)
    }

    fn children(&mut self, visited: &Visited, visitor: &mut impl Visitor<L>) -> Result<Next, Error> {
        let table = self.tables.format().table_address(visited.entry);
        self.table(table, visited.level - 1, visitor)?;
        if self.flags.contains(Flags::TABLE_POST) {
            self.counters.callbacks += 1;
            return visitor.visit(self, visited, Visit::TablePost);
        }
        Ok(Next::Entry)
    }

    #[inline(always)]
    fn is_table(&self, visited: &Visited) -> bool {
        visited.level > 0 && self.tables.format().kind(visited.level, visited.entry) == Kind::Table
    }

    #[inline(always)]
    fn read(&self, pa: OutputAddress, level: u8) -> Result<u64, Error> {
        self.tables.arena().read(pa).ok_or_else(|| self.tables.outside(pa, InputAddress(self.va), level).into())
    }
}
