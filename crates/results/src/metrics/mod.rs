//! One sample of the memory of control groups and the state of the system ([`Look`]): as text, as JSON, and for
//! Prometheus.

mod groups;
pub mod json;
pub mod openmetrics;
mod system;
pub mod text;

pub use groups::{Group, GroupName, MAX_GROUPS, MAX_NAME_BYTES, Uninspected, bounded};
pub use system::System;

/// One sample of all control groups and the system.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// The groups, largest first. If some are combined ([`bounded`]), their combination is the last.
    pub groups: Vec<Group>,
    /// The number of groups with processes, before some were combined.
    pub all_groups: u64,
    /// Processes whose group is unknown, and which were therefore not inspected.
    pub without_group: Uninspected,
    pub system: System,
    /// Processor time that taking the sample cost, in seconds.
    pub cost_s: f64,
}

#[cfg(test)]
mod sample {
    use std::collections::BTreeMap;

    use policy::cause::Cause;
    use policy::census::{Backing, Folio, Mapping};
    use policy::inspect::{Charges, HugetlbCharge, Pool, Totals};
    use policy::size::PageSize;

    use super::*;

    /// A group with one process of this many bytes in base pages, and twice as many in PMD leaves.
    pub fn group(name: &str, bytes: u64) -> Group {
        let mut group = Group::new(GroupName::Path(name.into()));
        let mapping = |leaf, folio| Mapping { backing: Backing::Anonymous, leaf, folio };
        let mut totals = Totals { processes: 1, could_be_larger_bytes: bytes, bloat_bytes: 1, ..Totals::default() };
        totals.census.add(mapping(PageSize::K4, Folio::Part(PageSize::K64)), bytes / 2);
        totals.census.add(mapping(PageSize::K4, Folio::Whole(PageSize::K64)), bytes - bytes / 2);
        totals.census.add(mapping(PageSize::M2, Folio::Whole(PageSize::M2)), 2 * bytes);
        totals.private_bytes = Some(2 * bytes);
        totals.mapped_again_bytes = Some(bytes);
        totals.proportional_bytes = Some(2 * bytes);
        totals.causes = BTreeMap::from([(Cause::NotAdvised, bytes)]);
        totals.lazy_free_bytes = Some(3);
        group.totals = totals;
        group
    }

    /// A sample with two inspected groups, one that could not be inspected, and a system with one pool.
    pub fn look() -> Look {
        let mut first = group("/a\"b\\\n", 4 << 20);
        first.uninspected = Uninspected { ended: 1, forbidden: 2, failed: 0 };
        first.charges = Charges {
            charged_bytes: Some(8192),
            limit_bytes: Some(16384),
            hugetlb: vec![HugetlbCharge { size: PageSize::M2, used_bytes: 2 << 20, limit_bytes: Some(4 << 20) }],
            ..Charges::default()
        };
        let mut unseen = Group::new(GroupName::Path("/unseen".into()));
        unseen.uninspected.forbidden = 1;
        let counters = [
            ("thp_fault_alloc", 30),
            ("thp_fault_fallback", 10),
            ("compact_stall", 5),
            ("compact_fail", 2),
            ("khugepaged/pages_collapsed", 7),
        ];
        let pool =
            Pool { size: PageSize::M2, pages: 8, free: 5, reserved: 1, surplus: 0, surplus_left: 0, nodes: Vec::new() };
        Look {
            groups: vec![first, group("/c", 1 << 20), unseen],
            all_groups: 3,
            without_group: Uninspected { ended: 3, ..Uninspected::default() },
            system: System {
                base: PageSize::K4,
                pmd: Some(PageSize::M2),
                mthp: vec![PageSize::K64],
                free_blocks_by_node: BTreeMap::from([(0, vec![3, 0, 1]), (1, vec![1, 1])]),
                counters: counters.map(|(name, count)| (name.to_string(), count)).into(),
                anonymous_folios: BTreeMap::from([(PageSize::M2, 9)]),
                pools: vec![pool],
            },
            cost_s: 0.25,
        }
    }
}
