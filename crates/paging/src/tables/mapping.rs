//! What is to be mapped, and with which leaves.

use crate::address::{InputAddress, OutputAddress};
use crate::attributes::Attributes;

/// Which leaves a mapping may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the largest leaf; a smaller one is taken where alignment or length ask for it.
    pub largest_bytes: u64,
    /// Aligned runs of leaves become contiguous groups where the format has them.
    pub contiguous: bool,
}

impl Sizes {
    /// The largest leaves, and contiguous groups.
    pub const BEST: Sizes = Sizes { largest_bytes: u64::MAX, contiguous: true };

    /// Leaves of at most `largest_bytes`, no contiguous groups.
    pub const fn up_to(largest_bytes: u64) -> Sizes {
        Sizes { largest_bytes, contiguous: false }
    }
}

/// A range that is to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first input address.
    pub va: InputAddress,
    /// The output address of `va`.
    pub pa: OutputAddress,
    /// How many bytes.
    pub bytes: u64,
    /// What every leaf says besides its address.
    pub attributes: Attributes,
    /// Which leaves.
    pub sizes: Sizes,
}
