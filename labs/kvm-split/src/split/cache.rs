//! [`TableCache`]: tables that are allocated before a split, because the split may not allocate while it holds the lock.

use super::error::Error;
use paging::Log;
use paging::Tables;
use paging::format::Format;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{InputAddress, OutputAddress};

/// The lowest and the highest level of the blocks that KVM splits.
pub(super) const BLOCK_LEVELS: (u8, u8) = (1, 2);

/// Tables that are allocated and not linked yet.
#[derive(Clone, Debug, Default)]
pub struct TableCache {
    tables: Vec<OutputAddress>,
}

impl TableCache {
    /// The number of tables in the cache.
    pub fn len(&self) -> u64 {
        self.tables.len() as u64
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Allocates tables until the cache has `capacity`.
    ///
    /// # Errors
    /// The arena is full. The tables allocated so far stay in the cache.
    pub fn top_up<L: Log>(&mut self, tables: &mut Tables<Arm64Stage2, L>, capacity: u64) -> Result<(), paging::Error> {
        let bytes = tables.geometry().page_bytes();
        while self.len() < capacity {
            self.tables.push(tables.arena_mut().allocate(bytes, bytes)?);
        }
        Ok(())
    }

    /// Returns the cached tables to the arena. Hardware has never seen them.
    pub fn empty<L: Log>(&mut self, tables: &mut Tables<Arm64Stage2, L>) {
        let bytes = tables.geometry().page_bytes();
        for table in self.tables.drain(..) {
            tables.arena_mut().release(table, bytes);
        }
    }

    /// Takes one table for the block at `va`.
    pub(super) fn take(&mut self, va: InputAddress, level: u8) -> Result<OutputAddress, Error> {
        self.tables.pop().ok_or(Error::CacheEmpty { va, level, needed: 1, cached: 0 })
    }
}

/// The maximum number of tables that splitting `bytes` needs (kvm_mmu_split_nr_page_tables): one for each block of the
/// lowest block size, and with the 4K granule one more for each 1G.
pub fn tables_for(format: &Arm64Stage2, bytes: u64) -> u64 {
    let geometry = format.geometry();
    let highest = if format.granule() == Granule::K4 { BLOCK_LEVELS.1 } else { BLOCK_LEVELS.0 };
    (BLOCK_LEVELS.0..=highest).map(|level| bytes.div_ceil(geometry.span(level))).sum()
}
