//! The visitor that replaces each block by a table of pages, and its variants.

use super::build::{self, Build};
use super::cache::{BLOCK_LEVELS, TableCache};
use super::counters::Counters;
use super::error::Error;
use super::slot::Slot;
use super::walker::{Flags, Next, Visit, Visited, Visitor, Walk, walk};
use paging::ENTRY_BYTES;
use paging::Log;
use paging::Tables;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::format::{Format, Kind};

/// The variants of a split, which differ in the entries that they do not visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Linux 6.12: the walk descends into every table, including those that it has just created, and calls the visitor
    /// for every page.
    Vanilla,
    /// The RFC of May 2026: the visitor's return value skips the rest of a table of pages, and the tables that it built.
    SkipByReturn,
    /// The series of June 2026, "a": a walk flag prevents the walk from ever reading a page's entry.
    SkipPages,
    /// "b": as `SkipPages`, and the walk does not descend into tables that were built down to pages.
    SkipPagesAndChildren,
}

impl Variant {
    /// All variants, the slowest first.
    pub const ALL: [Variant; 4] =
        [Variant::Vanilla, Variant::SkipByReturn, Variant::SkipPages, Variant::SkipPagesAndChildren];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Vanilla => "vanilla",
            Variant::SkipByReturn => "skip-by-return",
            Variant::SkipPages => "skip-level-3",
            Variant::SkipPagesAndChildren => "skip-level-3-and-children",
        }
    }

    const fn flags(self) -> Flags {
        match self {
            Variant::Vanilla | Variant::SkipByReturn => Flags::LEAF,
            Variant::SkipPages | Variant::SkipPagesAndChildren => Flags::LEAF.union(Flags::SKIP_PAGES),
        }
    }
}

/// Splits the blocks of a slot in one walk, with tables from `cache` (kvm_pgtable_stage2_split). If the cache has too
/// few tables for a block's whole subtree, the block is first split by one level; the same walk then splits the
/// resulting blocks.
///
/// A block that extends past the slot's ends is split as a whole.
///
/// # Errors
/// The slot is misaligned or too large, tables cannot be followed, KVM would not split a block, or the cache runs
/// empty. Blocks that were split before stay split.
pub fn split<L: Log>(
    tables: &mut Tables<Arm64Stage2, L>,
    slot: Slot,
    variant: Variant,
    build: Build,
    cache: &mut TableCache,
    counters: &mut Counters,
) -> Result<(), Error> {
    let mut visitor = Split { variant, build, cache };
    walk(tables, slot.ipa, slot.bytes, variant.flags(), &mut visitor, counters)
}

struct Split<'a> {
    variant: Variant,
    build: Build,
    cache: &'a mut TableCache,
}

impl<L: Log> Visitor<L> for Split<'_> {
    #[inline(always)]
    fn visit(&mut self, walk: &mut Walk<'_, L>, visited: &Visited, _: Visit) -> Result<Next, Error> {
        let returns = self.variant == Variant::SkipByReturn;
        match visited.level {
            0 if returns => Ok(Next::SkipSiblings),
            0 => Ok(Next::Entry),
            level if walk.tables.format().kind(level, visited.entry) == Kind::Hole => Ok(Next::Entry),
            _ => self.split_block(walk, visited),
        }
    }
}

impl Split<'_> {
    #[inline(never)]
    fn split_block<L: Log>(&mut self, walk: &mut Walk<'_, L>, block: &Visited) -> Result<Next, Error> {
        let Visited { pa, va, level, entry } = *block;
        refuse_odd_blocks(walk.tables, block)?;
        let complete = self.cache.len() >= tables_below(walk.tables.format(), level);
        if self.cache.is_empty() {
            return Err(Error::CacheEmpty { va, level, needed: 1, cached: 0 });
        }
        let table = build::unlinked(walk, block, complete, self.build, self.cache)?;
        let new = walk.tables.format().table(table);
        let resolved = walk.tables.geometry().resolved(va);
        let slot = paging::Slot { pa, va: resolved, level, entry };
        // Break before make: no TLB may hold the block when the table is linked.
        walk.tables.write(slot, 0)?;
        walk.tables.invalidate(resolved, walk.tables.geometry().span(level), false);
        walk.counters.tlb_invalidations += 1;
        walk.tables.write(paging::Slot { entry: 0, ..slot }, new)?;
        let skips = matches!(self.variant, Variant::SkipByReturn | Variant::SkipPagesAndChildren);
        Ok(if skips && complete { Next::SkipChildren } else { Next::Entry })
    }
}

/// The number of tables in the whole subtree of a block (stage2_block_get_nr_page_tables).
fn tables_below(format: &Arm64Stage2, level: u8) -> u64 {
    let entries = format.geometry().page_bytes() / ENTRY_BYTES;
    if level == BLOCK_LEVELS.1 { entries + 1 } else { 1 }
}

fn refuse_odd_blocks<L: Log>(tables: &Tables<Arm64Stage2, L>, block: &Visited) -> Result<(), Error> {
    let Visited { va, level, entry, .. } = *block;
    match tables.format().kind(level, entry) {
        Kind::Illegal => Err(tables.unmapped(va, level, entry).into()),
        _ if level > BLOCK_LEVELS.1 => Err(Error::Unsplittable { va, level }),
        _ if tables.format().group_bits(level, entry) != 0 => Err(Error::Grouped { va, level, entry }),
        _ => Ok(()),
    }
}
