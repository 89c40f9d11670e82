//! What a walk finds, and where an entry is.

use crate::address::OutputAddress;

/// What an input address translates to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The output address.
    pub pa: OutputAddress,
    /// The level of the leaf.
    pub level: u8,
}

/// The leaf that an input address meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The output address of that input address.
    pub pa: OutputAddress,
    /// Its level.
    pub level: u8,
    /// Its value.
    pub entry: u64,
}

/// Where an entry is and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The physical address of the entry.
    pub pa: OutputAddress,
    /// The first (resolved) input address that it is for.
    pub va: u64,
    pub level: u8,
    pub entry: u64,
}

/// As many levels as any format has.
pub(super) const LEVELS: usize = 5;

/// Where the stretch of `bytes` (a power of two) around `va` ends.
pub(crate) const fn end_of(va: u64, bytes: u64) -> u64 {
    (va | (bytes - 1)) + 1
}
