//! [`Charges`]: what the controllers of control groups account for one group.

use crate::size::PageSize;

/// Memory that is charged to a control group, by the kernel's own accounting. Each page is charged once, to the group that touched it
/// first. A figure that the kernel does not have for the group is `None`: the root group has few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// All charged bytes, with those of the groups below it (`memory.current`, `memory.usage_in_bytes`).
    pub charged_bytes: Option<u64>,
    /// The limit of the group itself; `None` also where it has none (`memory.max`, `memory.limit_in_bytes`).
    pub limit_bytes: Option<u64>,
    /// Anonymous bytes (`anon`, in version 1 `rss`).
    pub anonymous_bytes: Option<u64>,
    /// Anonymous bytes in folios of PMD size (`anon_thp`, in version 1 `rss_huge`).
    pub anonymous_large_bytes: Option<u64>,
    /// Bytes of the page cache, with shared memory (`file`, in version 1 `cache`).
    pub file_bytes: Option<u64>,
    /// The pages of hugetlb pools, one entry for each size that the controller accounts for.
    pub hugetlb: Vec<HugetlbCharge>,
}

/// The pages of a hugetlb pool that a control group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugetlbCharge {
    /// Page size of the pool.
    pub size: PageSize,
    /// Bytes in use by the group and those below it.
    pub used_bytes: u64,
    /// The limit of the group itself; `None` where it has none.
    pub limit_bytes: Option<u64>,
}
