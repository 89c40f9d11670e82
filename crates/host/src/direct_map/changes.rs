//! [`Changes`]: splits and collapses of leaves since boot, from the kernel's counters.

use policy::size::PageSize;

use crate::{Host, HostError};

/// How often leaves of one level were split and collapsed since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    pub leaf: PageSize,
    /// `direct_map_levelN_splits` of /proc/vmstat; absent where the kernel does not count them.
    pub splits: Option<u64>,
    /// `direct_map_levelN_collapses` (Linux 6.15); absent where the kernel does not count them.
    pub collapses: Option<u64>,
}

/// Splits and collapses of each large leaf, smallest first. Level 2 is the PMD, level 3 the PUD (mm/vmstat.c,
/// arch/x86/mm/pat/set_memory.c: PG_LEVEL_2M, PG_LEVEL_1G).
pub fn changes(host: &Host) -> Result<Vec<Changes>, HostError> {
    let counters = host.counters()?;
    let of_level = |(at, leaf): (usize, &PageSize)| {
        let count = |what: &str| counters.get(&format!("direct_map_level{}_{what}", at + 1));
        Changes { leaf: *leaf, splits: count("splits"), collapses: count("collapses") }
    };
    Ok(host.page_sizes().direct_map_leaves().iter().enumerate().skip(1).map(of_level).collect())
}
