//! What a frame shows: plain data, which knows neither the kernel nor the terminal.

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
    /// The processes, in no order.
    pub rows: Vec<Row>,
    /// How often it is looked.
    pub pace: Told,
}

/// How often it is looked, and what that costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// Seconds from one frame to the next.
    pub every_s: f64,
    /// Seconds that were asked for.
    pub asked_s: f64,
    /// CPU time that a frame took beside the looks at processes.
    pub frame_s: f64,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id.
    pub pid: u32,
    /// Its name, as the process has it: not escaped.
    pub name: String,
    /// Resident bytes by its counters.
    pub resident_bytes: u64,
    /// Faults a second; absent until it was counted twice.
    pub faults_per_s: Option<f64>,
    /// What was seen of its memory.
    pub look: Look,
}

/// What is known of the memory of a process.
#[derive(Clone, Debug)]
pub enum Look {
    /// It is still to be looked at.
    NotYet,
    /// It was looked at.
    Seen(Seen),
    /// It could not be looked at, for this reason.
    Refused(String),
}

/// What was seen of a process.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its memory by size.
    pub sizes: Sizes,
    /// Bytes that could be mapped by larger pages than they are.
    pub larger_bytes: u64,
    /// Why they are not: the cause that explains most of them.
    pub cause: Option<String>,
    /// Seconds since then.
    pub age_s: f64,
    /// Whether its memory may have changed since.
    pub is_old: bool,
}

/// The system, and what moved in it since the frame before.
#[derive(Clone, Debug)]
pub struct System {
    /// The sizes of the kernel.
    pub page_sizes: PageSizes,
    /// Seconds that the rates are of; absent in the first frame.
    pub over_s: Option<f64>,
    /// All memory.
    pub memory_bytes: Option<u64>,
    /// Memory that new programs can have.
    pub available_bytes: Option<u64>,
    /// Free blocks by order.
    pub free_blocks_by_order: Vec<u64>,
    /// Free memory in blocks of a PMD leaf or more; absent without THP.
    pub free_in_pmd_blocks_bytes: Option<u64>,
    /// Faults a second.
    pub faults_per_s: Option<f64>,
    /// Faults that waited for I/O, a second.
    pub major_faults_per_s: Option<f64>,
    /// Folios that anonymous faults were given, by size.
    pub sizes: Vec<SizeRates>,
    /// khugepaged.
    pub khugepaged: Khugepaged,
    /// Compaction.
    pub compaction: Compaction,
    /// Splits of large folios a second (`thp_split_page`).
    pub folio_splits_per_s: Option<f64>,
    /// Splits of PMD leaves a second (`thp_split_pmd`).
    pub leaf_splits_per_s: Option<f64>,
    /// The hugetlb pools that have pages.
    pub pools: BTreeMap<PageSize, Pool>,
}

/// What anonymous faults were given of a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeRates {
    /// The size.
    pub size: PageSize,
    /// Folios of it a second.
    pub given_per_s: Option<f64>,
    /// Faults a second that asked for it and got less: no free block, or no room in the control group.
    pub fell_back_per_s: Option<f64>,
    /// Folios of it in the system; absent before Linux 6.12.
    pub folios: Option<u64>,
}

/// What khugepaged did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Khugepaged {
    /// Windows that became large pages, a second.
    pub collapsed_per_s: Option<f64>,
    /// Windows for which there was no free block, a second (MADV_COLLAPSE counts too).
    pub no_block_per_s: Option<f64>,
    /// Windows that it left because too many of their pages are absent, swapped or shared, a second.
    pub exceeded_per_s: Option<f64>,
    /// Passes over all processes since boot.
    pub full_scans: Option<u64>,
}

/// What compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compaction {
    /// Allocations that waited for it, a second.
    pub stalls_per_s: Option<f64>,
    /// Those that got their block, a second.
    pub succeeded_per_s: Option<f64>,
    /// Those that did not, a second.
    pub failed_per_s: Option<f64>,
    /// Times that kcompactd was woken, a second.
    pub woken_per_s: Option<f64>,
    /// Pages that were moved, a second, for whatever reason (`pgmigrate_success`).
    pub moved_pages_per_s: Option<f64>,
}

impl System {
    /// The system at `now`, with rates since `before`: a reading and the seconds from it to `now`.
    pub fn of(now: &Activity, before: Option<(&Activity, f64)>, page_sizes: &PageSizes) -> System {
        let rate = |name: &str| {
            let (before, seconds) = before?;
            Some(before.counters.moved(&now.counters, name)? as f64 / seconds)
        };
        // A sum of what this kernel counts; absent where it counts none of it.
        let sum = |names: &[&str]| names.iter().filter_map(|name| rate(name)).reduce(|one, other| one + other);
        let size_rates = |size: &PageSize| {
            let of = |name: &str| rate(&format!("hugepages-{}kB/{name}", size.bytes() >> 10));
            // Before Linux 6.10 only the PMD size is counted, under other names.
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
    fn rates_are_of_what_is_counted_and_absent_otherwise() {
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
