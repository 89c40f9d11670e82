//! A view of `top` for tests: a system with all kinds of data, and processes with malicious names.

use std::collections::BTreeMap;

use host::activity::Pool;
use policy::PageSizes;
use policy::census::{Backing, Census, Folio, Mapping};
use policy::size::PageSize;

use super::view::{Compaction, Inspected, InspectionState, Khugepaged, RefreshCost, Row, SizeRates, System, View};
use crate::sizes::Sizes;

/// Memory in base pages, folios of 64K and leaves of 2M, in MiB.
fn sizes(base: u64, mthp: u64, pmd: u64) -> Sizes {
    let mut census = Census::default();
    let mut add = |leaf, folio, mib: u64| {
        census.add(Mapping { backing: Backing::Anonymous, leaf, folio: Folio::Whole(folio) }, mib << 20);
    };
    add(PageSize::K4, PageSize::K4, base);
    add(PageSize::K4, PageSize::K64, mthp);
    add(PageSize::M2, PageSize::M2, pmd);
    Sizes::of(&census)
}

fn row(pid: u32, name: &str, mib: u64, faults_per_s: Option<f64>, inspection: InspectionState) -> Row {
    Row { pid, name: name.into(), resident_bytes: mib << 20, faults_per_s, inspection }
}

fn rows() -> Vec<Row> {
    let seen = |sizes, larger_mib: u64, cause: Option<&str>, is_old| {
        let cause = cause.map(String::from);
        InspectionState::Done(Inspected { sizes, larger_bytes: larger_mib << 20, cause, age_s: 3.0, is_old })
    };
    let disabled = "the process disabled THP for itself (PR_SET_THP_DISABLE)";
    let advice = "not advised, and the kernel gives the size to advised memory only";
    vec![
        row(1, "systemd", 12, Some(0.0), seen(sizes(12, 0, 0), 0, None, false)),
        row(77, "redis-server", 812, Some(12_345.0), seen(sizes(812, 0, 0), 806, Some(disabled), false)),
        row(4242, "java", 4100, Some(3.2), seen(sizes(300, 200, 3600), 262, Some(advice), true)),
        row(4300, "e\u{1b}[31mvil\n", 8, None, InspectionState::Pending),
        row(
            4301,
            "größe",
            3,
            None,
            InspectionState::Failed("not permitted: root may, and the user whose process it is".into()),
        ),
    ]
}

/// The sample view.
pub fn view() -> View {
    let size = |size, given, fell, folios| SizeRates {
        size,
        given_per_s: Some(given),
        fell_back_per_s: Some(fell),
        folios: Some(folios),
    };
    let system = System {
        page_sizes: PageSizes {
            base: PageSize::K4,
            pmd: Some(PageSize::M2),
            mthp: vec![PageSize::new(32 << 10).unwrap(), PageSize::K64],
            hugetlb: vec![PageSize::M2],
        },
        over_s: Some(2.0),
        memory_bytes: Some(32 << 30),
        available_bytes: Some(21 << 30),
        free_blocks_by_order: vec![11516, 5262, 2010, 1172, 327, 126, 2805, 1956, 1295, 716, 874],
        free_in_pmd_blocks_bytes: Some(5 << 30),
        faults_per_s: Some(12_400.0),
        major_faults_per_s: Some(0.0),
        sizes: vec![
            size(PageSize::new(32 << 10).unwrap(), 0.0, 0.0, 0),
            size(PageSize::K64, 120.0, 0.0, 3200),
            size(PageSize::M2, 14.0, 3.0, 1800),
        ],
        khugepaged: Khugepaged {
            collapsed_per_s: Some(1.5),
            no_block_per_s: Some(0.0),
            exceeded_per_s: Some(20.0),
            full_scans: Some(12),
        },
        compaction: Compaction {
            stalls_per_s: Some(3.0),
            succeeded_per_s: Some(2.0),
            failed_per_s: Some(1.0),
            woken_per_s: Some(0.0),
            moved_pages_per_s: Some(900.0),
        },
        folio_splits_per_s: Some(0.0),
        leaf_splits_per_s: Some(4.0),
        pools: BTreeMap::from([(PageSize::M2, Pool { pages: 64, free: 10 })]),
    };
    View { system, rows: rows(), pace: RefreshCost { every_s: 2.0, requested_s: 2.0, frame_s: 0.004 } }
}
