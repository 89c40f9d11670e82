//! Why a split ended early.

use alloc::string::String;

use thiserror::Error as ThisError;

use crate::address::InputAddress;

/// A split that was refused, or that could not go on. What was split before stays split, and legal.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The slot cannot be looked up, or the tables cannot be followed.
    #[error(transparent)]
    Tables(#[from] crate::Error),
    /// A chunk that is no block size of the granule (KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE refuses it).
    #[error("a chunk of {bytes:#x} bytes: expected one of {offered}, or 0 for no splitting")]
    ChunkSize {
        /// The size asked for.
        bytes: u64,
        /// The sizes that there are.
        offered: String,
    },
    /// A slot whose bitmap of dirty pages has no whole words before its end.
    #[error("the page {page} of a slot of {pages}: expected a multiple of 64 inside the slot")]
    NoWord {
        /// The page that the word should begin with.
        page: u64,
        /// The pages of the slot.
        pages: u64,
    },
    /// The cache had too few tables for the next block (-ENOMEM).
    #[error("the block at {va:#x}, level {level}, needs {needed} table(s) and the cache has {cached}")]
    CacheEmpty {
        /// The first input address of the block.
        va: InputAddress,
        /// Its level.
        level: u8,
        /// Tables for one level of it.
        needed: u64,
        /// Tables that the cache has.
        cached: u64,
    },
    /// The cache could not be filled before the next chunk (-ENOMEM).
    #[error("no memory for {capacity} cached tables before the chunk at {va:#x}: {cached} could be had; {source}")]
    TopUp {
        /// The first input address of the chunk.
        va: InputAddress,
        /// Tables that a chunk may need.
        capacity: u64,
        /// Tables that could be had.
        cached: u64,
        /// What the arena said.
        source: crate::Error,
    },
    /// A block at a level that KVM splits no blocks of (-EINVAL).
    #[error("a block at {va:#x}, level {level}: expected blocks at the levels 1 and 2 only")]
    Unsplittable {
        /// The first input address of the block.
        va: InputAddress,
        /// Its level.
        level: u8,
    },
    /// A block of a contiguous group, which KVM never makes at stage 2.
    #[error("the block {entry:#018x} at {va:#x}, level {level}, belongs to a contiguous group; unfold it first")]
    Grouped {
        /// The first input address of the block.
        va: InputAddress,
        /// Its level.
        level: u8,
        /// The block.
        entry: u64,
    },
}
