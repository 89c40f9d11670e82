//! The result of a walk, and the position of an entry.

use crate::address::OutputAddress;

/// The translation of an input address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The output address.
    pub pa: OutputAddress,
    /// The level of the leaf; 0 is the level of pages.
    pub level: u8,
}

/// The leaf that translates an input address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The output address for that input address.
    pub pa: OutputAddress,
    /// The leaf's level; 0 is the level of pages.
    pub level: u8,
    /// The value of its entry.
    pub entry: u64,
}

/// The position of an entry, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The physical address of the entry.
    pub pa: OutputAddress,
    /// The first (resolved) input address that it translates.
    pub va: u64,
    /// The level of its table; 0 is the level of pages.
    pub level: u8,
    /// The value of the entry.
    pub entry: u64,
}

/// The maximum number of levels of any format.
pub(super) const LEVELS: usize = 5;

/// The end of the aligned block of `bytes` (a power of two) that contains `va`.
pub(crate) const fn end_of(va: u64, bytes: u64) -> u64 {
    (va | (bytes - 1)) + 1
}
