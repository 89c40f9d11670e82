//! Builds the tables that replace a block before hardware can see them.

use super::cache::TableCache;
use super::counters::Counters;
use super::error::Error;
use super::walker::{Next, Visit, Visited, Visitor, Walk, walk_unlinked};
use paging::ENTRY_BYTES;
use paging::Log;
use paging::format::Format;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{InputAddress, OutputAddress};

/// How the tables for a block are built. Both ways give the same tables and the same counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Build {
    /// As in KVM: the generic walker visits each new entry, and a visitor maps it.
    #[default]
    Walk,
    /// Table by table, in a loop over its entries.
    Fill,
}

/// The common properties of the leaves in a block's tables.
#[derive(Clone, Copy)]
struct Leaves {
    format: Arm64Stage2,
    /// The first input address of the block, and the address of its memory.
    va: InputAddress,
    pa: OutputAddress,
    /// The block's attribute bits, without its address and type.
    bits: u64,
    /// Whether to build down to pages; otherwise one level only.
    complete: bool,
}

impl Leaves {
    fn of(format: Arm64Stage2, block: &Visited, complete: bool) -> Leaves {
        let Visited { va, level, entry, .. } = *block;
        let address = format.address_bits(0, u64::MAX, false);
        let bits = entry & !(address | TYPE);
        Leaves { format, va, pa: format.leaf_address(level, entry, va), bits, complete }
    }

    /// Whether the entries of a table at `level` are tables again.
    fn has_tables(&self, level: u8) -> bool {
        self.complete && level > 0
    }

    #[inline]
    fn leaf(&self, level: u8, va: InputAddress) -> u64 {
        let kind = if level == 0 { PAGE } else { BLOCK };
        self.bits | kind | self.format.address_bits(level, self.pa.0 + (va - self.va), false)
    }
}

/// Bits 1:0 of a descriptor, and their values in a page and in a block (Arm ARM D8.3.1).
const TYPE: u64 = 0b11;
const PAGE: u64 = 0b11;
const BLOCK: u64 = 0b01;

/// Builds the table that replaces `block` (kvm_pgtable_stage2_create_unlinked), down to pages if `complete`. It takes
/// tables from `cache`, which must have enough.
pub(super) fn unlinked<L: Log>(
    walk: &mut Walk<'_, L>,
    block: &Visited,
    complete: bool,
    build: Build,
    cache: &mut TableCache,
) -> Result<OutputAddress, Error> {
    let leaves = Leaves::of(*walk.tables.format(), block, complete);
    let table = cache.take(block.va, block.level)?;
    walk.counters.tables += 1;
    let level = block.level - 1;
    match build {
        Build::Fill => fill(walk, &leaves, cache, (table, level), block.va)?,
        Build::Walk => {
            let geometry = walk.tables.geometry();
            let first = geometry.resolved(block.va);
            let range = (first, first + geometry.span(block.level));
            let mut visited = Counters::default();
            let mut visitor = Map { leaves: &leaves, cache };
            walk_unlinked(walk, (table, level), range, &mut visitor, &mut visited)?;
            walk.counters.entries_built += visited.entries_read;
            walk.counters.tables += visited.tables;
            walk.counters.cache_lines += visited.cache_lines;
        }
    }
    Ok(table)
}

/// Maps each visited entry of unlinked tables (stage2_map_walker).
struct Map<'a> {
    leaves: &'a Leaves,
    cache: &'a mut TableCache,
}

impl<L: Log> Visitor<L> for Map<'_> {
    #[inline(always)]
    fn visit(&mut self, walk: &mut Walk<'_, L>, visited: &Visited, _: Visit) -> Result<Next, Error> {
        let Visited { pa, va, level, .. } = *visited;
        let new = if self.leaves.has_tables(level) {
            walk.counters.tables += 1;
            self.leaves.format.table(self.cache.take(va, level)?)
        } else {
            self.leaves.leaf(level, va)
        };
        match walk.tables.arena_mut().entry_mut(pa) {
            Some(entry) => *entry = new,
            None => return Err(walk.tables.outside(pa, va, level).into()),
        }
        Ok(Next::Entry)
    }
}

fn fill<L: Log>(
    walk: &mut Walk<'_, L>,
    leaves: &Leaves,
    cache: &mut TableCache,
    (table, level): (OutputAddress, u8),
    va: InputAddress,
) -> Result<(), Error> {
    let geometry = walk.tables.geometry();
    let (span, bytes) = (geometry.span(level), geometry.page_bytes());
    if leaves.has_tables(level) {
        for index in 0..bytes / ENTRY_BYTES {
            let below = cache.take(va, level)?;
            walk.counters.tables += 1;
            fill(walk, leaves, cache, (below, level - 1), va + index * span)?;
            if let Some(entry) = walk.tables.arena_mut().entry_mut(table + index * ENTRY_BYTES) {
                *entry = leaves.format.table(below);
            }
        }
    } else if let Some(entries) = walk.tables.arena_mut().table_mut(table, bytes / ENTRY_BYTES) {
        for (index, entry) in (0u64..).zip(entries) {
            *entry = leaves.leaf(level, va + index * span);
        }
    }
    walk.counters.entries_built += bytes / ENTRY_BYTES;
    walk.counters.scanned(table, table + bytes);
    Ok(())
}
