//! One sample of the system ([`Look`]) as OpenMetrics text for Prometheus
//! (docs/reference/formats/metrics-openmetrics.md).

use std::collections::BTreeMap;

use policy::census::{Backing, Folio, Mapping};
use policy::inspect::{HugetlbCharge, Pool, Totals};
use policy::size::PageSize;

use super::system::{COMPACTION, Counted, KHUGEPAGED, SizeFaults};
use super::{Group, Look, System};
use crate::inspection::openmetrics::{backing, code};
use crate::openmetrics::{self, Family, Kind, Labels, Value};

/// Maximum number of causes that a group exports separately; the rest is summed.
pub const MAX_CAUSES: usize = 16;

pub fn text(look: &Look) -> String {
    let families = [memory(look), accounts(look), processes(look), free(&look.system), counted(&look.system)];
    openmetrics::text(&families.concat())
}

/// The label of a group, followed by `more` labels.
fn labels<const N: usize>(group: &Group, more: [(&'static str, String); N]) -> Labels {
    std::iter::once(("cgroup", group.name.label().to_string())).chain(more).collect()
}

/// One sample for each group for which `figure` has a value.
fn one(look: &Look, figure: impl Fn(&Group) -> Option<u64>) -> Vec<(Labels, u64)> {
    look.groups.iter().filter_map(|group| Some((labels(group, []), figure(group)?))).collect()
}

/// Several samples for each group, distinguished by one more label.
fn several<T: ToString>(
    look: &Look,
    label: &'static str,
    figures: impl Fn(&Group) -> Vec<(T, u64)>,
) -> Vec<(Labels, u64)> {
    let of_group = |group: &Group| {
        let figures = figures(group).into_iter();
        figures.map(|(value, count)| (labels(group, [(label, value.to_string())]), count)).collect::<Vec<_>>()
    };
    look.groups.iter().flat_map(of_group).collect()
}

/// The memory of processes. A group without an inspected process has no samples.
fn memory(look: &Look) -> Vec<Family> {
    let known = |named: &[(&'static str, Option<u64>)]| {
        named.iter().filter_map(|(name, bytes)| Some((*name, (*bytes)?))).collect::<Vec<_>>()
    };
    let resident = |all: &Totals| known(&[("private", all.private_bytes), ("shared", all.mapped_again_bytes)]);
    let held = |all: &Totals| known(&[("lazy_free", all.lazy_free_bytes), ("unmapped_part", all.held_unmapped_bytes)]);
    let is_unknown = |mapping: &Mapping| mapping.backing == Backing::Anonymous && mapping.folio == Folio::Unknown;
    let unknown = |all: &Totals| all.census.bytes_where(is_unknown);
    let one = |figure: &dyn Fn(&Totals) -> Option<u64>| one(look, |group| figure(group.memory()?));
    vec![
        Family::gauge(
            "pagelab_cgroup_leaf_bytes",
            "Present memory of the processes of a control group by what backs it and the leaf that maps it; memory that several \
             of them map counts for each.",
            leaves(look),
        ),
        Family::gauge(
            "pagelab_cgroup_resident_bytes",
            "The same memory by whether it is mapped once (private) or more than once (shared, counted for each process).",
            several(look, "sharing", |group| group.memory().map_or_else(Vec::new, resident)),
        ),
        Family::gauge(
            "pagelab_cgroup_proportional_bytes",
            "Memory of the processes outside hugetlb pools, each page divided by the number of its mappings (Pss).",
            one(&|all| all.proportional_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_larger_folio_bytes",
            "Anonymous memory in folios that are larger than the leaves that map them, by the size of the folio.",
            several(look, "folio_bytes", |group| larger_folios(&group.totals)),
        ),
        Family::gauge(
            "pagelab_cgroup_unknown_folio_bytes",
            "Anonymous memory whose folios could not be seen.",
            one(&|all| Some(unknown(all))),
        ),
        Family::gauge(
            "pagelab_cgroup_could_be_larger_bytes",
            "Memory that could be mapped by larger pages than it is.",
            one(&|all| Some(all.could_be_larger_bytes)),
        ),
        Family::gauge(
            "pagelab_cgroup_cause_bytes",
            "Memory that could be mapped by larger pages, by the first cause why it is not.",
            several(look, "cause", |group| causes(&group.totals)),
        ),
        Family::gauge(
            "pagelab_cgroup_bloat_bytes",
            "Memory that larger pages would add.",
            one(&|all| Some(all.bloat_bytes)),
        ),
        Family::gauge(
            "pagelab_cgroup_held_unused_bytes",
            "Memory that is held but not used: freed with MADV_FREE and not reclaimed yet (lazy_free), or in folios of which only \
             another part is mapped (unmapped_part).",
            several(look, "reason", |group| group.memory().map_or_else(Vec::new, held)),
        ),
    ]
}

/// Memory by backing and leaf. Anonymous memory in base pages and in PMD leaves has a sample even if it is zero.
fn leaves(look: &Look) -> Vec<(Labels, u64)> {
    let always = std::iter::once(look.system.base).chain(look.system.pmd);
    let always: Vec<(Backing, PageSize)> = always.map(|leaf| (Backing::Anonymous, leaf)).collect();
    let of_group = |(group, all): (&Group, &Totals)| {
        let mut leaves: BTreeMap<(Backing, PageSize), u64> = always.iter().map(|leaf| (*leaf, 0)).collect();
        for (mapping, bytes) in all.census.rows() {
            *leaves.entry((mapping.backing, mapping.leaf)).or_insert(0) += bytes;
        }
        let sample = |((of, leaf), bytes): ((Backing, PageSize), u64)| {
            let more = [("backing", backing(of).to_string()), ("leaf_bytes", leaf.bytes().to_string())];
            (labels(group, more), bytes)
        };
        leaves.into_iter().map(sample).collect::<Vec<_>>()
    };
    let known = look.groups.iter().filter_map(|group| Some((group, group.memory()?)));
    known.flat_map(of_group).collect()
}

fn larger_folios(all: &Totals) -> Vec<(u64, u64)> {
    let mut folios = BTreeMap::new();
    let larger = |(mapping, bytes): (&Mapping, u64)| Some((mapping.larger_folio()?.bytes(), bytes));
    for (folio, bytes) in all.census.rows().filter_map(larger) {
        *folios.entry(folio).or_insert(0) += bytes;
    }
    folios.into_iter().collect()
}

/// Bytes by the code of the cause, largest first; causes beyond [`MAX_CAUSES`] are summed.
pub fn causes(all: &Totals) -> Vec<(String, u64)> {
    let mut by_code = BTreeMap::new();
    for (cause, bytes) in &all.causes {
        *by_code.entry(code(cause)).or_insert(0) += bytes;
    }
    let mut causes: Vec<(String, u64)> = by_code.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    causes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let others: u64 = causes.iter().skip(MAX_CAUSES).map(|(_, bytes)| bytes).sum();
    causes.truncate(MAX_CAUSES);
    causes.extend((others > 0).then(|| ("other".to_string(), others)));
    causes
}

/// The kernel's own accounting of the groups.
fn accounts(look: &Look) -> Vec<Family> {
    let pool = |figure: fn(&HugetlbCharge) -> Option<u64>| {
        several(look, "page_bytes", move |group| {
            let pools = group.charges.hugetlb.iter();
            pools.filter_map(|pool| Some((pool.size.bytes(), figure(pool)?))).collect()
        })
    };
    vec![
        Family::gauge(
            "pagelab_cgroup_charged_bytes",
            "Memory that the memory controller charges to a control group and those below it, each page once.",
            one(look, |group| group.charges.charged_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_limit_bytes",
            "The group's own memory limit; absent without one.",
            one(look, |group| group.charges.limit_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_charged_anonymous_bytes",
            "Anonymous memory that is charged (memory.stat: anon, or total_rss in version 1).",
            one(look, |group| group.charges.anonymous_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_charged_anonymous_large_bytes",
            "Anonymous memory that is charged, in folios of PMD size (anon_thp, or total_rss_huge).",
            one(look, |group| group.charges.anonymous_large_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_charged_file_bytes",
            "Page cache and shared memory that is charged (file, or total_cache).",
            one(look, |group| group.charges.file_bytes),
        ),
        Family::gauge(
            "pagelab_cgroup_hugetlb_bytes",
            "Pages of a hugetlb pool that the hugetlb controller charges to a control group and those below it.",
            pool(|pool| Some(pool.used_bytes)),
        ),
        Family::gauge(
            "pagelab_cgroup_hugetlb_limit_bytes",
            "The group's own limit on pages of a hugetlb pool; absent without one.",
            pool(|pool| pool.limit_bytes),
        ),
    ]
}

fn processes(look: &Look) -> Vec<Family> {
    let states = |group: &Group| {
        let (totals, uninspected) = (&group.totals, group.uninspected);
        vec![
            ("inspected", totals.processes - totals.partial),
            ("partly_inspected", totals.partial),
            ("ended", uninspected.ended),
            ("forbidden", uninspected.forbidden),
            ("failed", uninspected.failed),
        ]
    };
    let without = look.without_group;
    let without = [("ended", without.ended), ("forbidden", without.forbidden), ("failed", without.failed)];
    vec![
        Family::gauge(
            "pagelab_cgroup_processes",
            "Processes of a control group by what became of their inspection. Figures of those that were not inspected are \
             missing above.",
            several(look, "inspection", states),
        ),
        Family::gauge(
            "pagelab_node_processes_without_cgroup",
            "Processes whose control group could not be read, by the reason; none was inspected.",
            without.map(|(state, count)| (vec![("inspection", state.to_string())], count)),
        ),
        Family::gauge(
            "pagelab_node_cgroups",
            "Control groups with processes, with those that are summed as other.",
            [(vec![], look.all_groups)],
        ),
        Family {
            name: "pagelab_metrics_cost_seconds",
            help: "Processor time of this look.",
            kind: Kind::Gauge,
            samples: vec![(vec![], Value::Measured(look.cost_s))],
        },
    ]
}

fn free(system: &System) -> Vec<Family> {
    let of_node = |(node, blocks): (&u32, &Vec<u64>)| {
        let of_order = |(order, blocks): (usize, &u64)| {
            let block_bytes = system.base.bytes() << order;
            let labels = [("numa_node", node.to_string()), ("block_bytes", block_bytes.to_string())];
            (labels.to_vec(), blocks * block_bytes)
        };
        blocks.iter().enumerate().map(of_order).collect::<Vec<_>>()
    };
    let folios = |(size, folios): (&PageSize, &u64)| (vec![("folio_bytes", size.bytes().to_string())], *folios);
    let pools = |figure: fn(&Pool) -> u64| {
        let samples = system.pools.iter();
        samples.map(move |pool| (vec![("page_bytes", pool.size.bytes().to_string())], figure(pool))).collect::<Vec<_>>()
    };
    vec![
        Family::gauge(
            "pagelab_node_free_block_bytes",
            "Free memory by NUMA node and by the size of the block of the buddy allocator.",
            system.free_blocks_by_node.iter().flat_map(of_node),
        ),
        Family::gauge(
            "pagelab_node_anonymous_folios",
            "Anonymous folios of the system by size (nr_anon, Linux 6.12).",
            system.anonymous_folios.iter().map(folios),
        ),
        Family::gauge("pagelab_node_pool_pages", "Pages of a hugetlb pool.", pools(|pool| pool.pages)),
        Family::gauge(
            "pagelab_node_pool_free_pages",
            "Pages of a hugetlb pool that are free and not reserved.",
            pools(|pool| pool.free),
        ),
        Family::gauge(
            "pagelab_node_pool_reserved_pages",
            "Pages of a hugetlb pool that are reserved for mappings that have not touched them yet.",
            pools(|pool| pool.reserved),
        ),
    ]
}

fn counted(system: &System) -> Vec<Family> {
    let faults = |count: fn(&SizeFaults) -> u64| {
        let sample = move |faults: SizeFaults| {
            let size = faults.size.bytes().to_string();
            (vec![("memory", faults.memory.to_string()), ("folio_bytes", size)], count(&faults))
        };
        system.faults().into_iter().map(sample).collect::<Vec<_>>()
    };
    let by_size = [
        Family::counter(
            "pagelab_node_faults_given_total",
            "Faults that got a folio of the size, since boot.",
            faults(|faults| faults.given),
        ),
        Family::counter(
            "pagelab_node_faults_fell_back_total",
            "Faults that asked for a folio of the size and took a smaller one, since boot.",
            faults(|faults| faults.fell_back),
        ),
    ];
    let plain = |counted: &Counted| {
        let count = system.counters.get(counted.counter);
        Family::counter(counted.metric, counted.help, count.map(|count| (Vec::new(), *count)))
    };
    by_size.into_iter().chain(COMPACTION.iter().chain(&KHUGEPAGED).map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use policy::cause::Cause;

    use super::super::sample;
    use super::*;

    #[test]
    fn a_look_has_the_figures_of_groups_and_of_the_system() {
        let text = text(&sample::look());
        let name = "/a\\\"b\\\\\\\\n";
        for line in [
            format!(
                "pagelab_cgroup_leaf_bytes{{cgroup=\"{name}\",backing=\"anonymous\",leaf_bytes=\"2097152\"}} 8388608"
            ),
            format!("pagelab_cgroup_resident_bytes{{cgroup=\"{name}\",sharing=\"private\"}} 8388608"),
            format!("pagelab_cgroup_resident_bytes{{cgroup=\"{name}\",sharing=\"shared\"}} 4194304"),
            format!("pagelab_cgroup_larger_folio_bytes{{cgroup=\"{name}\",folio_bytes=\"65536\"}} 2097152"),
            format!("pagelab_cgroup_cause_bytes{{cgroup=\"{name}\",cause=\"not_advised\"}} 4194304"),
            format!("pagelab_cgroup_held_unused_bytes{{cgroup=\"{name}\",reason=\"lazy_free\"}} 3"),
            format!("pagelab_cgroup_hugetlb_limit_bytes{{cgroup=\"{name}\",page_bytes=\"2097152\"}} 4194304"),
            format!("pagelab_cgroup_processes{{cgroup=\"{name}\",inspection=\"forbidden\"}} 2"),
            "pagelab_node_processes_without_cgroup{inspection=\"ended\"} 3".into(),
            "pagelab_node_free_block_bytes{numa_node=\"0\",block_bytes=\"16384\"} 16384".into(),
            "pagelab_node_faults_fell_back_total{memory=\"anonymous\",folio_bytes=\"2097152\"} 10".into(),
            "pagelab_node_compaction_stalls_total 5".into(),
            "pagelab_metrics_cost_seconds 0.25".into(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(!text.contains("unmapped_part\"}"), "an unknown figure has no sample\n{text}");
        let unseen = "pagelab_cgroup_processes{cgroup=\"/unseen\",inspection=\"forbidden\"} 1";
        assert!(text.contains(unseen) && !text.contains("_bytes{cgroup=\"/unseen\""), "{text}");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let names: std::collections::BTreeSet<&str> =
            samples.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(names.len(), samples.len(), "no sample occurs twice\n{text}");
    }

    #[test]
    fn causes_are_bounded_and_add_up() {
        let mut group = sample::group("/a", 1 << 20);
        let path = |at: usize| Cause::SizeDisabled { path: at.to_string() };
        group.totals.causes = (0..100).map(|at| (path(at), 10)).collect();
        assert_eq!(causes(&group.totals), [("size_disabled".to_string(), 1000)], "the details of a cause are no label");
        for (at, cause) in [
            Cause::NotAdvised,
            Cause::AdvisedAgainst,
            Cause::DisabledForProcess,
            Cause::TouchedBeforeEligible,
            Cause::RefilledAfterDrop,
            Cause::SplitMeanwhile,
            Cause::SplitAfterFork,
            Cause::FilledWithBasePages,
            Cause::ReadFirst,
            Cause::ZeroPageInSlot,
            Cause::ZeroPiecesOfSplit,
            Cause::SlotPartlyPresent,
            Cause::FolioPartlyMapped,
            Cause::LeafSplit,
            Cause::ChargeFellBack,
            Cause::Stack,
            Cause::Demoted,
        ]
        .into_iter()
        .enumerate()
        {
            group.totals.causes.insert(cause, at as u64 + 1);
        }
        let causes = causes(&group.totals);
        assert_eq!((causes.len(), causes.last().unwrap()), (MAX_CAUSES + 1, &("other".to_string(), 1 + 2)));
    }
}
