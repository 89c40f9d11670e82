//! One sample of the system ([`Look`]) as text: a line for each group, and the state of the system below.

use policy::inspect::Totals;
use policy::size::{PageSize, format_bytes};

use super::openmetrics::causes;
use super::system::{COMPACTION, Counted, KHUGEPAGED, SizeFaults};
use super::{Group, Look, System, Uninspected};
use crate::grid;
use crate::text::{fold, printable};

/// Columns of the table without the names of groups.
const OTHER_COLUMNS: usize = 80;
/// Minimum width of the column with the names of groups.
const MIN_NAME: usize = 16;
/// Maximum width of the column with the causes.
const MAX_CAUSE: usize = 18;

/// The period over which the counters of the text count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period<'a> {
    /// Since boot.
    Boot,
    /// Since an earlier sample, taken this number of seconds before.
    Look(&'a System, f64),
}

pub fn look(look: &Look, period: Period, width: usize) -> String {
    let (system, since) = match period {
        Period::Boot => (look.system.clone(), "since the boot".to_string()),
        Period::Look(before, seconds) => (look.system.since(before), format!("in the last {seconds:.0} s")),
    };
    let lines = [without_group(look.without_group), free(&system), faults(&system, &since)];
    let counts = [("compaction", &COMPACTION[..]), ("khugepaged", &KHUGEPAGED[..])];
    let counts = counts.map(|(topic, counted)| counters(&system, topic, counted, &since));
    let pools = system.pools.iter().filter(|pool| pool.pages > 0);
    let pools = pools.map(|pool| format!("hugetlb pool: {}", pool.describe()));
    let lines = lines.into_iter().chain(counts).flatten().chain(pools);
    let lines: Vec<String> = lines.map(|line| fold(&line, width, 2)).collect();
    format!("{}\n\n{}", table(look, width), lines.join("\n"))
}

fn table(look: &Look, width: usize) -> String {
    let header = ["control group", "procs", "resident", "pss", "larger", "could be", "unused", "first cause"];
    let name_width = width.saturating_sub(OTHER_COLUMNS).max(MIN_NAME);
    grid::last_folded(header, look.groups.iter().map(|group| row(group, look.system.base, name_width)), width)
}

fn row(group: &Group, base: PageSize, name_width: usize) -> [String; 8] {
    let memory = group.memory();
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_string(), format_bytes);
    let processes = match group.uninspected.all() {
        0 => group.totals.processes.to_string(),
        more => format!("{} + {more}?", group.totals.processes),
    };
    [
        shortened(&printable(group.name.label()), name_width),
        processes,
        bytes(memory.map(Totals::resident_bytes)),
        bytes(memory.and_then(|all| all.proportional_bytes)),
        memory.map_or_else(|| "?".to_string(), |all| share_of_larger(all, base)),
        bytes(memory.map(|all| all.could_be_larger_bytes)),
        bytes(memory.and_then(held_unused)),
        causes(&group.totals).first().map(|(cause, _)| shortened(cause, MAX_CAUSE)).unwrap_or_default(),
    ]
}

/// The share of memory that is mapped by leaves above the base page; empty without memory.
fn share_of_larger(all: &Totals, base: PageSize) -> String {
    let larger = all.census.bytes_where(|mapping| mapping.leaf > base);
    match all.resident_bytes() {
        0 => String::new(),
        resident => format!("{:.0} %", larger as f64 / resident as f64 * 100.0),
    }
}

fn held_unused(all: &Totals) -> Option<u64> {
    all.lazy_free_bytes.into_iter().chain(all.held_unmapped_bytes).reduce(|one, other| one + other)
}

/// A name in at most `width` characters. A longer name loses its beginning, because the ends of paths distinguish
/// groups.
fn shortened(name: &str, width: usize) -> String {
    let characters = name.chars().count();
    if characters <= width {
        return name.to_string();
    }
    std::iter::once('…').chain(name.chars().skip(characters + 1 - width)).collect()
}

fn without_group(without: Uninspected) -> Option<String> {
    let Uninspected { ended, forbidden, failed } = without;
    (without.all() > 0).then(|| {
        format!("processes whose control group is not known: {ended} ended, {forbidden} forbidden, {failed} failed")
    })
}

fn free(system: &System) -> Option<String> {
    let of_node = |(node, blocks): (&u32, &Vec<u64>)| {
        let of_order = |(order, blocks): (usize, &u64)| {
            let block_bytes = system.base.bytes() << order;
            format!("{} in {}", format_bytes(blocks * block_bytes), format_bytes(block_bytes))
        };
        format!("node {node}: {}", blocks.iter().enumerate().map(of_order).collect::<Vec<_>>().join(", "))
    };
    let nodes: Vec<String> = system.free_blocks_by_node.iter().map(of_node).collect();
    (!nodes.is_empty()).then(|| format!("free by block: {}", nodes.join("; ")))
}

fn faults(system: &System, since: &str) -> Option<String> {
    let of_size = |faults: SizeFaults| {
        let all = faults.given + faults.fell_back;
        let share = faults.fell_back as f64 / all as f64 * 100.0;
        let memory = if faults.memory == "anonymous" { String::new() } else { format!(" of {}", faults.memory) };
        (all > 0).then(|| format!("{}{memory}: {} given, {share:.0} % fell back", faults.size, faults.given))
    };
    let sizes: Vec<String> = system.faults().into_iter().filter_map(of_size).collect();
    (!sizes.is_empty()).then(|| format!("faults {since}: {}", sizes.join("; ")))
}

fn counters(system: &System, topic: &str, counted: &[Counted], since: &str) -> Option<String> {
    let count = |counted: &Counted| {
        let count = system.counters.get(counted.counter)?;
        Some(format!("{count} {}", counted.words))
    };
    let counts: Vec<String> = counted.iter().filter_map(count).collect();
    (!counts.is_empty()).then(|| format!("{topic} {since}: {}", counts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn every_group_is_a_line_with_the_system_below() {
        let text = look(&sample::look(), Period::Boot, 100);
        for part in [
            "/a\"b\\\\n",
            "1 + 3?",
            "not_advised",
            "67 %",
            "free by block: node 0: 12K in 4K, 0 in 8K, 16K in 16K; node 1: 4K in 4K, 8K in 8K",
            "faults since the boot: 2M: 30 given, 25 % fell back",
            "compaction since the boot: 5 allocations that waited, 2 got none",
            "khugepaged since the boot: 7 collapsed",
            "hugetlb pool: 8 pages of 2M",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let before = System { counters: [("compact_stall".to_string(), 4)].into(), ..sample::look().system };
        let text = look(&sample::look(), Period::Look(&before, 60.0), 100);
        assert!(text.contains("compaction in the last 60 s: 1 allocations that waited\n"), "{text}");
    }

    #[test]
    fn a_long_name_loses_its_beginning() {
        assert_eq!(shortened("/kubepods.slice/pod1/größe", 11), "…pod1/größe");
        assert_eq!(shortened("/größe", 6), "/größe");
    }
}
