//! Converts the costs of simulations to the plain data that reports show.

use model::costs::Costs;
use model::machine::{KernelCycles, Machine};
use model::simulation::Outcome;
use policy::size::format_bytes;
use results::answer::{Answer, RunTime, answers};
use results::simulation as shown;
use results::simulation::{Missing, Per, Spread};
use serde_json::json;

use super::machines;
use super::simulated::{Cell, Layouts, Simulated};

/// The results of a trace for each of the machines used.
pub fn answers_of(simulated: &Simulated, used: &[Machine]) -> Vec<Answer> {
    let machines: Vec<shown::Machine> = used.iter().map(machines::shown).collect();
    let mut answers = answers(&typical_cells(simulated), &machines, !simulated.replayed.is_complete(), &simulated.time);
    let has_own_times = machines.len() > 1 && matches!(simulated.time, RunTime::Assumed { .. });
    for answer in &mut answers {
        if let Some(layouts) = &simulated.layouts {
            answer.sentence.push_str(&over_layouts(&answer.machine, layouts));
        }
        if has_own_times {
            answer.sentence.push_str(
                " The time is assumed for each machine by itself: compare cycles between machines, not shares of the time.",
            );
        }
    }
    answers
}

/// Like [`cells`], but if several layouts were simulated, the counts are medians over layouts.
pub fn typical_cells(simulated: &Simulated) -> Vec<shown::Cell> {
    let mut cells = cells(simulated);
    if let Some(layouts) = &simulated.layouts {
        cells.iter_mut().for_each(|cell| use_medians(cell, layouts));
    }
    cells
}

/// Replaces the counts of a cell by their medians over layouts.
fn use_medians(cell: &mut shown::Cell, layouts: &Layouts) {
    let is_of = |spread: &&Spread| spread.machine == cell.machine && spread.policy == cell.policy && spread.layouts > 0;
    let (Some(spread), Ok(cost)) = (layouts.spreads.iter().find(is_of), &mut cell.outcome) else { return };
    let median = |name: &str, fixed: u64| spread.figure(name).map_or(fixed, |figure| figure.median);
    cost.walks = median("walks", cost.walks);
    cost.faults = median("faults", cost.faults);
    cost.table_peak_bytes = median("all_table_peak_bytes", cost.table_peak_bytes);
    cost.min_lost_cycles = median("min_lost_cycles", cost.min_lost_cycles);
    cost.max_lost_cycles = median("max_lost_cycles", cost.max_lost_cycles);
    cost.resident_peak_bytes = median("resident_peak_bytes", cost.resident_peak_bytes);
    cost.held_unmapped_peak_bytes = median("held_unmapped_peak_bytes", cost.held_unmapped_peak_bytes);
    if let Some(kernel) = &mut cost.kernel {
        kernel.fault = median("kernel_cycles, fault", kernel.fault);
        kernel.zeroing = median("kernel_cycles, zeroing", kernel.zeroing);
        kernel.copying = median("kernel_cycles, copying", kernel.copying);
    }
    for (name, count) in &mut cost.figures {
        *count = median(name, *count);
    }
}

/// A sentence which says that an answer is based on medians over layouts, and under which policies layouts make a
/// difference.
fn over_layouts(machine: &str, layouts: &Layouts) -> String {
    let of_machine = layouts.spreads.iter().filter(|spread| spread.machine == machine);
    let varying: Vec<String> = of_machine.filter_map(Spread::loss_in_words).collect();
    let varying = if varying.is_empty() { String::new() } else { format!(", in which {}", varying.join(", ")) };
    format!(" Counts are medians over {} randomised layouts{varying}.", layouts.count)
}

/// Each machine under each policy, for reports.
pub fn cells(simulated: &Simulated) -> Vec<shown::Cell> {
    let cell = |cell: &Cell| match cell {
        Cell::Ran(outcome) => shown::Cell {
            machine: outcome.machine.clone(),
            policy: outcome.policy.to_string(),
            outcome: match &outcome.stopped {
                Some(why) => Err(Missing::Stopped(why.clone())),
                None => Ok(cost(outcome)),
            },
        },
        Cell::Refused(refused) => shown::Cell {
            machine: refused.machine.clone(),
            policy: refused.policy.clone(),
            outcome: Err(Missing::Refused(refused.reason.clone())),
        },
    };
    simulated.cells.iter().map(cell).collect()
}

/// The costs of an outcome, for reports.
pub fn cost(outcome: &Outcome) -> shown::Cost {
    let mapped = |mapped: &model::simulation::Mapped| shown::Mapped {
        leaf_bytes: mapped.leaf_bytes,
        group_bytes: mapped.group_bytes,
        bytes: mapped.bytes,
    };
    let kernel = |cycles: KernelCycles| shown::KernelCycles {
        fault: cycles.fault_cycles,
        zeroing: cycles.zeroing_cycles,
        copying: cycles.copying_cycles,
    };
    shown::Cost {
        page_bytes: outcome.page_bytes,
        verdict: outcome.verdict.clone(),
        per: Per::of(outcome.instructions, outcome.runs),
        first_level_misses: outcome.first_level.total(),
        second_level_misses: outcome.second_level.total(),
        walks: outcome.walks,
        walk_references: outcome.walk_references,
        min_lost_cycles: outcome.min_lost_cycles(),
        max_lost_cycles: outcome.max_lost_cycles(),
        kernel: outcome.kernel_cycles.map(kernel),
        faults: outcome.faults,
        resident_peak_bytes: outcome.costs.resident_peak_bytes,
        touched_peak_bytes: outcome.touched_peak_bytes,
        held_unmapped_peak_bytes: outcome.costs.held_unmapped_peak_bytes,
        table_peak_bytes: outcome.costs.all_table_peak_bytes,
        mapped: outcome.mapped.iter().map(mapped).collect(),
        figures: figures(outcome),
    }
}

/// Every count of the outcome with its name in JSON, including misses by size and the levels where entries were found.
pub fn figures(outcome: &Outcome) -> Vec<(String, u64)> {
    let mut figures = Vec::new();
    for (level, misses) in [("first_level", &outcome.first_level), ("second_level", &outcome.second_level)] {
        figures.push((format!("{level}_misses"), misses.total()));
        let kinds = [("fetch", misses.fetch), ("load", misses.load), ("store", misses.store)];
        figures.extend(kinds.map(|(kind, count)| (format!("{level}_misses, {kind}"), count)));
        for of in &misses.by_size {
            figures.push((format!("{level}_misses, {}", format_bytes(of.page_bytes)), of.misses));
        }
    }
    for (level, misses) in (3..).zip(&outcome.further_levels) {
        figures.push((format!("further_levels_misses, level {level}"), misses.total()));
    }
    let found =
        |found: &model::simulation::WalkReferences| (format!("walk_references, {}", found.cache), found.references);
    figures.extend(outcome.found.iter().map(found));
    figures.push(("min_lost_cycles".to_owned(), outcome.min_lost_cycles()));
    figures.push(("max_lost_cycles".to_owned(), outcome.max_lost_cycles()));
    if let Some(KernelCycles { fault_cycles, zeroing_cycles, copying_cycles }) = outcome.kernel_cycles {
        let cycles = [("fault", fault_cycles), ("zeroing", zeroing_cycles), ("copying", copying_cycles)];
        figures.extend(cycles.map(|(what, count)| (format!("kernel_cycles, {what}"), count)));
    }
    let document = json!(outcome);
    let counts = document.as_object().into_iter().flatten();
    let of_the_machine = ["walkers", "threads", "base_bytes", "page_bytes"];
    let counts = counts.filter(|(name, _)| !of_the_machine.contains(&name.as_str()));
    figures.extend(counts.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))));
    figures
}

/// Names of the counts that every outcome has, except the counts of demand paging, which are in [`Costs`].
const NAMES: [&str; 15] = [
    "accesses",
    "faults",
    "first_level_misses",
    "instructions",
    "min_lost_cycles",
    "max_lost_cycles",
    "resident_bytes",
    "runs",
    "second_hit_cycles",
    "second_level_misses",
    "touched_bytes",
    "touched_peak_bytes",
    "walk_cycles",
    "walk_references",
    "walks",
];

/// Prefixes of names of counts that exist per size, cache, level or kind. Not every machine has these.
const PARTS: [&str; 5] =
    ["first_level_misses", "second_level_misses", "further_levels_misses", "walk_references", "kernel_cycles"];

/// All names of counts that every outcome has.
pub fn names() -> Vec<String> {
    let costs = json!(Costs::default());
    let costs = costs.as_object().into_iter().flatten().filter(|(_, value)| value.is_u64());
    NAMES.iter().map(|name| (*name).to_owned()).chain(costs.map(|(name, _)| name.clone())).collect()
}

/// Whether an outcome can have a count of this name on any machine.
pub fn is_name(name: &str) -> bool {
    match name.split_once(", ") {
        Some((count, _)) => PARTS.contains(&count),
        None => names().iter().any(|known| known == name),
    }
}
