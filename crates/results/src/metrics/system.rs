//! The state of the whole system in one sample ([`System`]).

use std::collections::BTreeMap;

use policy::inspect::Pool;
use policy::size::PageSize;

/// Free memory, counters and pools of the system.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Base page size.
    pub base: PageSize,
    /// The size of a PMD leaf; `None` without THP.
    pub pmd: Option<PageSize>,
    pub mthp: Vec<PageSize>,
    /// Free blocks by NUMA node and order.
    pub free_blocks_by_node: BTreeMap<u32, Vec<u64>>,
    /// The kernel's event counters since boot, by the names of `host::Counters`.
    pub counters: BTreeMap<String, u64>,
    /// Anonymous folios by size.
    pub anonymous_folios: BTreeMap<PageSize, u64>,
    /// The hugetlb pools.
    pub pools: Vec<Pool>,
}

/// A kernel event counter: its exported metric, and its words in the text.
pub struct Counted {
    /// The name of the exported metric.
    pub metric: &'static str,
    /// What the counter counts, as the help text of the metric.
    pub help: &'static str,
    /// Words for the counter in a line of text about its topic.
    pub words: &'static str,
    /// The name of the counter in the kernel.
    pub counter: &'static str,
}

/// Counters of compaction (mm/compaction.c).
pub const COMPACTION: [Counted; 5] = [
    Counted {
        metric: "pagelab_node_compaction_stalls_total",
        help: "Allocations that waited for direct compaction (compact_stall).",
        words: "allocations that waited",
        counter: "compact_stall",
    },
    Counted {
        metric: "pagelab_node_compaction_successes_total",
        help: "Direct compactions after which the allocation succeeded (compact_success).",
        words: "got a block",
        counter: "compact_success",
    },
    Counted {
        metric: "pagelab_node_compaction_failures_total",
        help: "Direct compactions after which the allocation failed (compact_fail).",
        words: "got none",
        counter: "compact_fail",
    },
    Counted {
        metric: "pagelab_node_kcompactd_wakes_total",
        help: "Wake-ups of kcompactd (compact_daemon_wake).",
        words: "kcompactd woken",
        counter: "compact_daemon_wake",
    },
    Counted {
        metric: "pagelab_node_migrated_pages_total",
        help: "Base pages moved by compaction or for another reason (pgmigrate_success).",
        words: "pages moved",
        counter: "pgmigrate_success",
    },
];

/// Counters of khugepaged (mm/khugepaged.c).
pub const KHUGEPAGED: [Counted; 6] = [
    Counted {
        metric: "pagelab_node_khugepaged_collapses_total",
        help: "Ranges that khugepaged collapsed into large pages (pages_collapsed).",
        words: "collapsed",
        counter: "khugepaged/pages_collapsed",
    },
    Counted {
        metric: "pagelab_node_collapse_block_failures_total",
        help: "Collapses for which there was no free block, with those of MADV_COLLAPSE (thp_collapse_alloc_failed).",
        words: "no free block",
        counter: "thp_collapse_alloc_failed",
    },
    Counted {
        metric: "pagelab_node_collapse_absent_refusals_total",
        help: "Collapses refused because too many pages were absent (thp_scan_exceed_none_pte).",
        words: "too many absent",
        counter: "thp_scan_exceed_none_pte",
    },
    Counted {
        metric: "pagelab_node_collapse_swapped_refusals_total",
        help: "Collapses refused because too many pages were swapped out (thp_scan_exceed_swap_pte).",
        words: "too many swapped",
        counter: "thp_scan_exceed_swap_pte",
    },
    Counted {
        metric: "pagelab_node_collapse_shared_refusals_total",
        help: "Collapses refused because too many pages were shared (thp_scan_exceed_share_pte).",
        words: "too many shared",
        counter: "thp_scan_exceed_share_pte",
    },
    Counted {
        metric: "pagelab_node_khugepaged_scans_total",
        help: "Scans of all processes by khugepaged (full_scans).",
        words: "scans of all processes",
        counter: "khugepaged/full_scans",
    },
];

/// How often faults on memory of one kind got, or did not get, folios of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeFaults {
    pub size: PageSize,
    /// The kind of memory: `anonymous` or `shmem`.
    pub memory: &'static str,
    /// Faults that got a folio of this size.
    pub given: u64,
    /// Faults that fell back to a smaller size.
    pub fell_back: u64,
}

impl System {
    /// The system with counters relative to an earlier sample. A counter that only one of the two samples has is left
    /// out.
    pub fn since(&self, before: &System) -> System {
        let increase = |(name, now): (&String, &u64)| {
            let by = now.checked_sub(*before.counters.get(name)?)?;
            Some((name.clone(), by))
        };
        System { counters: self.counters.iter().filter_map(increase).collect(), ..self.clone() }
    }

    /// Faults by size and kind of memory, as far as this kernel counts them. Before Linux 6.10 the kernel counts only PMD size,
    /// under other names.
    pub fn faults(&self) -> Vec<SizeFaults> {
        let count = |name: &str| self.counters.get(name).copied();
        let of_size = |size: &PageSize, memory: &'static str, prefix: &str| {
            let own = |name: &str| count(&format!("hugepages-{}kB/{prefix}_{name}", size.bytes() >> 10));
            let plain = |name: &str| count(name).filter(|_| Some(*size) == self.pmd && memory == "anonymous");
            let given = own("fault_alloc").or_else(|| own("alloc")).or_else(|| plain("thp_fault_alloc"))?;
            let fell_back =
                own("fault_fallback").or_else(|| own("fallback")).or_else(|| plain("thp_fault_fallback"))?;
            Some(SizeFaults { size: *size, memory, given, fell_back })
        };
        let sizes = self.mthp.iter().chain(&self.pmd);
        let both = |size: &PageSize| [of_size(size, "anonymous", "anon"), of_size(size, "shmem", "shmem")];
        sizes.flat_map(both).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn faults_are_counted_by_size_or_on_old_kernels_for_pmd_size() {
        let mut system = sample::look().system;
        let pmd = SizeFaults { size: PageSize::M2, memory: "anonymous", given: 30, fell_back: 10 };
        assert_eq!(system.faults(), [pmd]);
        let own = [("anon_fault_alloc", 4), ("anon_fault_fallback", 1), ("shmem_alloc", 2), ("shmem_fallback", 0)];
        for (name, count) in own {
            system.counters.insert(format!("hugepages-64kB/{name}"), count);
        }
        let of_64k = |memory, given, fell_back| SizeFaults { size: PageSize::K64, memory, given, fell_back };
        assert_eq!(system.faults(), [of_64k("anonymous", 4, 1), of_64k("shmem", 2, 0), pmd]);
        let since = system.since(&sample::look().system);
        assert_eq!((since.counters.get("compact_stall"), since.counters.len()), (Some(&0), 5));
    }
}
