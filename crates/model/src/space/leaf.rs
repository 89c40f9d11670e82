//! What a walk finds: a leaf, and the entries on the way to it.

use crate::address::Pa;

/// Levels that a walk can have.
pub const LEVELS: usize = 5;

/// What maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that its entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group that it says it belongs to, or of the leaf.
    pub group_bytes: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether a fault mapped it just now.
    pub faulted: bool,
}

/// The entries that a walk reads, the root's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Their physical addresses, by level.
    pub entries: [Pa; LEVELS],
    /// The level of the root.
    pub root_level: u8,
    /// The level of the leaf.
    pub leaf_level: u8,
}
