//! Requests to map a range.

use crate::address::{InputAddress, OutputAddress};
use crate::attributes::Attributes;

/// The leaves that a mapping may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum leaf size in bytes; smaller leaves are used where alignment or length require it.
    pub largest_bytes: u64,
    /// Whether aligned runs of leaves become contiguous groups if the format has them.
    pub contiguous: bool,
}

impl Sizes {
    /// The largest leaves, and contiguous groups.
    pub const BEST: Sizes = Sizes { largest_bytes: u64::MAX, contiguous: true };

    /// Leaves of at most `largest_bytes`, without contiguous groups.
    pub const fn up_to(largest_bytes: u64) -> Sizes {
        Sizes { largest_bytes, contiguous: false }
    }
}

/// A range to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first input address.
    pub va: InputAddress,
    /// The output address of `va`.
    pub pa: OutputAddress,
    /// Length in bytes.
    pub bytes: u64,
    /// The attributes of every leaf.
    pub attributes: Attributes,
    /// The leaves that may be used.
    pub sizes: Sizes,
}
