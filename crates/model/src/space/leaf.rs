//! The result of a walk: a leaf, and the entries on the path to it.

use crate::address::Pa;

/// Maximum number of levels of a walk.
pub const LEVELS: usize = 5;

/// The leaf that maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that one entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the leaf's contiguous group; `leaf_bytes` if the leaf is in no group.
    pub group_bytes: u64,
    /// Whether the leaf is writable.
    pub writable: bool,
    /// Whether the access that asked for this leaf faulted.
    pub faulted: bool,
}

/// The entries that a walk reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The physical addresses of the entries, indexed by level.
    pub entries: [Pa; LEVELS],
    /// The level of the root; 0 is the level of pages.
    pub root_level: u8,
    /// The level of the leaf; 0 is the level of pages.
    pub leaf_level: u8,
}
