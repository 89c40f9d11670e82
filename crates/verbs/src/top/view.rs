//! Everything that a frame of `top` shows, as plain data ([`View`]), independent of the kernel and the terminal.

use std::collections::BTreeMap;

use host::Activity;
use host::activity::{FAULTS, FULL_SCANS, MAJOR_FAULTS, Pool};
use policy::PageSizes;
use policy::size::PageSize;

use crate::sizes::Sizes;

/// Everything that a frame shows.
#[derive(Clone, Debug)]
pub struct View {
    /// The whole system.
    pub system: System,
    /// The processes, unsorted.
    pub rows: Vec<Row>,
    /// The refresh interval and its cost.
    pub pace: RefreshCost,
}

/// The refresh interval and its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RefreshCost {
    /// Seconds from one frame to the next.
    pub every_s: f64,
    /// The requested interval in seconds.
    pub requested_s: f64,
    /// CPU seconds of a frame, without inspections of processes.
    pub frame_s: f64,
}

/// A row of the table: a process.
#[derive(Clone, Debug)]
pub struct Row {
    /// The process ID.
    pub pid: u32,
    /// The process name, not escaped: the process may set it.
    pub name: String,
    /// Resident bytes according to the kernel's counters.
    pub resident_bytes: u64,
    /// Page faults per second; `None` until there are two readings.
    pub faults_per_s: Option<f64>,
    /// The state of the last inspection.
    pub inspection: InspectionState,
}

/// The state of a process's inspection.
#[derive(Clone, Debug)]
pub enum InspectionState {
    /// The process has not been inspected yet.
    Pending,
    /// The process was inspected.
    Done(Inspected),
    /// The process could not be inspected, for this reason.
    Failed(String),
}

/// The result of an inspection.
#[derive(Clone, Debug, Default)]
pub struct Inspected {
    /// The memory of the process by size.
    pub sizes: Sizes,
    /// Bytes that could be mapped by larger leaves.
    pub larger_bytes: u64,
    /// The cause that explains most of these bytes.
    pub cause: Option<String>,
    /// Seconds since the inspection.
    pub age_s: f64,
    /// Whether the memory may have changed since the inspection.
    pub is_old: bool,
}

/// The state of the system, and its changes since the previous frame.
#[derive(Clone, Debug)]
pub struct System {
    /// The page sizes of the kernel.
    pub page_sizes: PageSizes,
    /// The seconds that rates are averaged over; `None` in the first frame.
    pub over_s: Option<f64>,
    /// The total memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory available to new programs, in bytes.
    pub available_bytes: Option<u64>,
    /// The number of free blocks by order.
    pub free_blocks_by_order: Vec<u64>,
    /// Free memory in blocks of at least PMD size; `None` without THP.
    pub free_in_pmd_blocks_bytes: Option<u64>,
    /// Page faults per second.
    pub faults_per_s: Option<f64>,
    /// Major faults, which wait for I/O, per second.
    pub major_faults_per_s: Option<f64>,
    /// Folios allocated by anonymous faults, by size.
    pub sizes: Vec<SizeRates>,
    pub khugepaged: Khugepaged,
    pub compaction: Compaction,
    /// Splits of large folios per second (`thp_split_page`).
    pub folio_splits_per_s: Option<f64>,
    /// Splits of PMD leaves per second (`thp_split_pmd`).
    pub leaf_splits_per_s: Option<f64>,
    /// The hugetlb pools that are not empty.
    pub pools: BTreeMap<PageSize, Pool>,
}

/// Allocations of one folio size by anonymous faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRates {
    /// The folio size.
    pub size: PageSize,
    /// Folios allocated per second.
    pub given_per_s: Option<f64>,
    /// Faults per second that fell back to a smaller size: no free block, or the memory cgroup's limit.
    pub fell_back_per_s: Option<f64>,
    /// The number of folios of this size; `None` before Linux 6.12.
    pub folios: Option<u64>,
}

/// Counters of khugepaged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Khugepaged {
    /// Ranges collapsed per second.
    pub collapsed_per_s: Option<f64>,
    /// Ranges for which there was no free block, per second (includes MADV_COLLAPSE).
    pub no_block_per_s: Option<f64>,
    /// Ranges skipped because too many of their pages are absent, swapped or shared, per second.
    pub exceeded_per_s: Option<f64>,
    /// Full scans of all processes since boot.
    pub full_scans: Option<u64>,
}

/// Counters of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compaction {
    /// Allocations that waited for direct compaction, per second.
    pub stalls_per_s: Option<f64>,
    /// Direct compactions that freed a block, per second.
    pub succeeded_per_s: Option<f64>,
    /// Direct compactions that failed, per second.
    pub failed_per_s: Option<f64>,
    /// Wake-ups of kcompactd per second.
    pub woken_per_s: Option<f64>,
    /// Pages migrated per second, for any reason (`pgmigrate_success`).
    pub moved_pages_per_s: Option<f64>,
}

impl System {
    /// The system according to the reading `now`. Rates are relative to `before`: the earlier reading, and the seconds
    /// between the two.
    pub fn of(now: &Activity, before: Option<(&Activity, f64)>, page_sizes: &PageSizes) -> System {
        let rate = |name: &str| {
            let (before, seconds) = before?;
            Some(before.counters.increase(&now.counters, name)? as f64 / seconds)
        };
        // The sum of those of the counters that this kernel has; `None` if it has none of them.
        let sum = |names: &[&str]| names.iter().filter_map(|name| rate(name)).reduce(|one, other| one + other);
        let size_rates = |size: &PageSize| {
            let of = |name: &str| rate(&format!("hugepages-{}kB/{name}", size.bytes() >> 10));
            // Before Linux 6.10, only the PMD size is counted, under other names.
            let plain = |name: &str| rate(name).filter(|_| Some(*size) == page_sizes.pmd);
            SizeRates {
                size: *size,
                given_per_s: of("anon_fault_alloc").or_else(|| plain("thp_fault_alloc")),
                fell_back_per_s: of("anon_fault_fallback").or_else(|| plain("thp_fault_fallback")),
                folios: now.anonymous_folios.get(size).copied(),
            }
        };
        System {
            page_sizes: page_sizes.clone(),
            over_s: before.map(|(_, seconds)| seconds),
            memory_bytes: now.memory_bytes,
            available_bytes: now.available_bytes,
            free_blocks_by_order: now.free_blocks_by_order.clone(),
            free_in_pmd_blocks_bytes: page_sizes.pmd.map(|pmd| now.free_bytes_from(pmd, page_sizes.base)),
            faults_per_s: rate(FAULTS),
            major_faults_per_s: rate(MAJOR_FAULTS),
            sizes: page_sizes.mthp.iter().chain(&page_sizes.pmd).map(size_rates).collect(),
            khugepaged: Khugepaged {
                collapsed_per_s: rate(host::COLLAPSED),
                no_block_per_s: rate("thp_collapse_alloc_failed"),
                exceeded_per_s: sum(&[
                    "thp_scan_exceed_none_pte",
                    "thp_scan_exceed_swap_pte",
                    "thp_scan_exceed_share_pte",
                ]),
                full_scans: now.counters.get(FULL_SCANS),
            },
            compaction: Compaction {
                stalls_per_s: rate("compact_stall"),
                succeeded_per_s: rate("compact_success"),
                failed_per_s: rate("compact_fail"),
                woken_per_s: rate("compact_daemon_wake"),
                moved_pages_per_s: rate("pgmigrate_success"),
            },
            folio_splits_per_s: rate("thp_split_page"),
            leaf_splits_per_s: rate("thp_split_pmd"),
            pools: now.pools.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_uncounted_events_are_absent() {
        let root = format!("{}/../../fixtures/host/x86_64-6.18", env!("CARGO_MANIFEST_DIR"));
        let host = host::Host::open(root).unwrap();
        let now = host.activity().unwrap();
        let first = System::of(&now, None, host.page_sizes());
        assert_eq!((first.faults_per_s, first.compaction.stalls_per_s, first.over_s), (None, None, None));
        let second = System::of(&now, Some((&now, 2.0)), host.page_sizes());
        assert_eq!(second.faults_per_s, Some(0.0));
        assert_eq!(second.khugepaged.collapsed_per_s, Some(0.0));
        assert!(second.sizes.iter().any(|rates| rates.size == PageSize::M2), "{:?}", second.sizes);
        let nothing = Activity::default();
        let unknown = System::of(&nothing, Some((&nothing, 2.0)), host.page_sizes());
        assert_eq!((unknown.faults_per_s, unknown.khugepaged.exceeded_per_s), (None, None));
    }
}
