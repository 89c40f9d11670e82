//! [`DirectMapLeaves`]: the leaves that a policy asks of the kernel's direct map.

use std::fmt;

use crate::size::PageSize;

/// The leaves of a direct map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirectMapLeaves {
    /// No leaf size maps nine tenths of memory. Most boots are like this: memory below 4G and at the ends of nodes is a large
    /// part of the total, or leaves have been split since boot.
    Mixed,
    /// Leaves of this size.
    Of(PageSize),
}

impl fmt::Display for DirectMapLeaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectMapLeaves::Of(size) => write!(f, "leaves of {size}"),
            DirectMapLeaves::Mixed => f.write_str("leaves of several sizes"),
        }
    }
}
