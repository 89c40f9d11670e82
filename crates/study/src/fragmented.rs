//! [`Fragmented`]: fragmentation of free memory, as on a machine that has been up for weeks.

use policy::size::PageSize;
use serde::{Deserialize, Serialize};

/// Requested fragmentation of free memory: only little of the free memory is left in large blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmented {
    /// Percentage of free memory that must be in blocks smaller than `block`.
    pub percent: u32,
    /// Blocks of this size or larger must be scarce.
    pub block: PageSize,
}
