//! The outcome as a table and as JSON.

use model::policy::ModelPolicy;
use model::simulation::Outcome;
use results::grid::plain;
use serde_json::{Value, json};
use study::policy::Granularity;
use study::size::format_bytes;

use super::{Cell, Simulated};

/// Tables for the terminal: one a machine.
pub fn text(simulated: &Simulated, width: usize) -> String {
    let mut lines = Vec::new();
    let ran: Vec<&Outcome> = simulated.cells.iter().filter_map(ran).collect();
    if let Some(first) = ran.first() {
        let instructions = first.instructions.map_or("unknown".to_owned(), |count| count.to_string());
        lines.push(format!(
            "{}: {} accesses in {} runs, {instructions} instructions, {} threads",
            simulated.file, first.accesses, first.runs, first.threads
        ));
    }
    for outcomes in ran.chunk_by(|one, other| one.machine == other.machine) {
        let header =
            ["policy", "L1 misses", "walks", "reads", "cycles", "faults", "resident", "touched", "tables", "mapped as"];
        let name = outcomes.first().map_or("", |outcome| &outcome.machine);
        lines.push(format!("\n{name}\n{}", plain(header, outcomes.iter().map(|outcome| row(outcome)), width)));
    }
    if let Some(first) = ran.first() {
        let unit = if first.instructions.is_some() { "instructions" } else { "runs" };
        lines.push(format!(
            "misses, walks, entries that walks read, and cycles lost (one walk at a time) per 1000 {unit}; modelled"
        ));
    }
    lines.extend(simulated.cells.iter().filter_map(refused));
    lines.extend(ran.iter().filter_map(|outcome| stopped(outcome)));
    lines.extend(ran.iter().filter_map(|outcome| without_large_leaves(outcome)));
    lines.extend(notes(simulated, &ran));
    lines.join("\n")
}

fn ran(cell: &Cell) -> Option<&Outcome> {
    match cell {
        Cell::Ran(outcome) => Some(outcome),
        Cell::Refused(_) => None,
    }
}

fn refused(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Ran(_) => None,
        Cell::Refused(unsupported) => Some(unsupported.to_string()),
    }
}

fn stopped(outcome: &Outcome) -> Option<String> {
    let why = outcome.stopped.as_ref()?;
    Some(format!("{} under {} ended before the trace did: {why}", outcome.machine, outcome.policy))
}

/// The largest page of any format, which is a leaf of level 0: arm64's 64K granule.
const LARGEST_PAGE_BYTES: u64 = 64 << 10;

/// A policy of large leaves that had none: its row alone would look like an answer.
fn without_large_leaves(outcome: &Outcome) -> Option<String> {
    let ModelPolicy::Kernel(policy) = &outcome.policy else { return None };
    let asks = matches!(policy.granularity, Granularity::Thp | Granularity::Hugetlb(_));
    let has_none = outcome.mapped.iter().all(|mapped| mapped.leaf_bytes <= LARGEST_PAGE_BYTES);
    let none = "nothing was mapped by a larger leaf at the end of the trace, so the policy was not shown to be in force: no \
                mapping may be large and aligned enough";
    (asks && has_none).then(|| format!("{} under {policy}: {none}", outcome.machine))
}

fn notes(simulated: &Simulated, ran: &[&Outcome]) -> Vec<String> {
    let mut notes = Vec::new();
    if simulated.replayed.inferred {
        notes.push(
            "the trace does not tell which memory there is: stretches of touched pages are taken for it".to_owned(),
        );
    }
    if simulated.replayed.cut_off && !ran.is_empty() {
        notes.push("the trace was cut off: its end is missing".to_owned());
    }
    if !simulated.replayed.damage.is_empty() {
        notes.push(format!("{} damaged parts of the trace were passed over", simulated.replayed.damage.len()));
    }
    if simulated.replayed.out_of_order != 0 {
        notes.push(format!("{} events came before others that are missing", simulated.replayed.out_of_order));
    }
    if let Some(outside) = ran.iter().map(|outcome| outcome.costs.outside_bytes).max().filter(|bytes| *bytes != 0) {
        notes.push(format!(
            "{} were touched where no event tells of memory, and mapped as base pages",
            format_bytes(outside)
        ));
    }
    if let Some(forks) = ran.iter().map(|outcome| outcome.costs.forks).max().filter(|forks| *forks != 0) {
        notes.push(format!("the program made {forks} processes, whose copies of memory are not modelled"));
    }
    notes
}

fn row(outcome: &Outcome) -> [String; 10] {
    let of = outcome.instructions.unwrap_or(outcome.runs).max(1) as f64;
    let rate = |count: u64| format!("{:.3}", count as f64 * 1000.0 / of);
    [
        outcome.policy.to_string(),
        rate(outcome.first_level.total()),
        rate(outcome.walks),
        rate(outcome.walk_references),
        rate(outcome.most_lost_cycles()),
        outcome.faults.to_string(),
        format_bytes(outcome.costs.resident_peak_bytes),
        format_bytes(outcome.touched_peak_bytes),
        format_bytes(outcome.costs.table_peak_bytes + outcome.costs.deposited_table_bytes),
        mapped(outcome),
    ]
}

/// What the memory is mapped as at the end: shares by size.
fn mapped(outcome: &Outcome) -> String {
    let all: u64 = outcome.mapped.iter().map(|mapped| mapped.bytes).sum();
    let share = |bytes: u64| 100.0 * bytes as f64 / all.max(1) as f64;
    let shown = outcome.mapped.iter().map(|mapped| {
        let size = match (mapped.leaf_bytes, mapped.group_bytes) {
            (leaf, group) if leaf == group => format_bytes(leaf),
            (leaf, group) => format!("{} of {}", format_bytes(group), format_bytes(leaf)),
        };
        format!("{size} {:.0} %", share(mapped.bytes))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

/// One trace of the JSON document.
pub fn document(simulated: &Simulated) -> Value {
    let cells: Vec<Value> = simulated
        .cells
        .iter()
        .map(|cell| match cell {
            Cell::Ran(outcome) => {
                let mut document = json!(outcome);
                document["least_lost_cycles"] = json!(outcome.least_lost_cycles());
                document["most_lost_cycles"] = json!(outcome.most_lost_cycles());
                document["provenance"] = json!("modelled");
                document
            }
            Cell::Refused(unsupported) => json!({
                "machine": unsupported.machine,
                "policy": unsupported.policy,
                "unsupported": unsupported.reason,
            }),
        })
        .collect();
    json!({
        "file": simulated.file,
        "recorder": simulated.header.recorder,
        "command": simulated.header.command,
        "arch": simulated.header.architecture,
        "memory_inferred": simulated.replayed.inferred,
        "cut_off": simulated.replayed.cut_off,
        "damage": simulated.replayed.damage,
        "events_out_of_order": simulated.replayed.out_of_order,
        "simulations": cells,
    })
}
