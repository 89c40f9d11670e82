//! Errors of a split.

use thiserror::Error as ThisError;

use paging::InputAddress;

/// Why a split was refused or stopped. Blocks that were split before stay split, and the tables are legal.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The slot cannot be looked up, or the tables cannot be followed.
    #[error(transparent)]
    Tables(#[from] paging::Error),
    /// The chunk is not a block size of the granule (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE refuses it).
    #[error("a chunk of {bytes:#x} bytes: expected one of {offered}, or 0 for no splitting")]
    ChunkSize {
        /// The requested size in bytes.
        bytes: u64,
        /// The sizes that are possible.
        offered: String,
    },
    /// No word of the slot's dirty bitmap begins at this page.
    #[error("the page {page} of a slot of {pages}: expected a multiple of 64 inside the slot")]
    NoWord {
        /// The page at which the word should begin.
        page: u64,
        /// Number of pages of the slot.
        pages: u64,
    },
    /// The cache had too few tables for the next block (-ENOMEM).
    #[error("the block at {va:#x}, level {level}, needs {needed} table(s) and the cache has {cached}")]
    CacheEmpty {
        /// The first input address of the block.
        va: InputAddress,
        /// The block's level.
        level: u8,
        /// Number of tables needed to split it by one level.
        needed: u64,
        /// Number of tables in the cache.
        cached: u64,
    },
    /// The cache could not be filled before the next chunk (-ENOMEM).
    #[error("no memory for {capacity} cached tables before the chunk at {va:#x}: the cache has {cached}; {source}")]
    TopUp {
        /// The first input address of the chunk.
        va: InputAddress,
        /// Number of tables that a chunk may need.
        capacity: u64,
        /// Number of tables that the cache holds.
        cached: u64,
        /// The arena's error.
        source: paging::Error,
    },
    /// The block is at a level at which KVM does not split blocks (-EINVAL).
    #[error("a block at {va:#x}, level {level}: expected blocks at the levels 1 and 2 only")]
    Unsplittable {
        /// The first input address of the block.
        va: InputAddress,
        /// The block's level.
        level: u8,
    },
    /// The block belongs to a contiguous group, which KVM never creates at stage 2.
    #[error("the block {entry:#018x} at {va:#x}, level {level}, belongs to a contiguous group; unfold it first")]
    Grouped {
        /// The first input address of the block.
        va: InputAddress,
        /// The block's level.
        level: u8,
        /// The value of the block's entry.
        entry: u64,
    },
}
