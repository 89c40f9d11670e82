//! Free memory as on a machine that has been up for weeks.

use policy::size::PageSize;
use serde::{Deserialize, Serialize};

/// Free memory of a machine that has been up for weeks: little of it lies in large blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmented {
    /// The part of free memory that shall lie in blocks below `block`, in percent.
    pub percent: u32,
    /// The size of the blocks of which few shall be left.
    pub block: PageSize,
}
