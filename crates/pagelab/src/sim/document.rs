//! The simulations as plain data for the page.

use model::machine;
use model::machine::Machine;
use model::simulation::Outcome;
use results::simulation as shown;
use results::simulation::{Document, Ground, Missing, Per};
use serde_json::json;
use study::size::format_bytes;

use super::{Cell, SimArguments, Simulated, notes};

/// Everything on one page.
pub fn document(simulated: &[Simulated], machines: &[Machine], arguments: &SimArguments) -> Document {
    let mut settings = Vec::new();
    if !arguments.geometry {
        settings = vec![
            ("memory of the machine".to_owned(), format_bytes(arguments.memory)),
            ("fragmentation".to_owned(), format!("{} %", arguments.fragmentation * 100.0)),
            ("seed".to_owned(), arguments.seed.to_string()),
        ];
        settings.extend(of_the_kernel(arguments));
    }
    let files: Vec<&str> = simulated.iter().map(|simulated| simulated.file.as_str()).collect();
    let title = match arguments.geometry {
        true => format!("TLB misses of {} for every geometry", files.join(", ")),
        false => format!("What page sizes cost {}", files.join(", ")),
    };
    Document {
        title,
        invocation: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        traces: simulated.iter().map(of_trace).collect(),
        machines: machines.iter().map(of_machine).collect(),
    }
}

/// What the kernel does besides the policies, or that it does nothing.
fn of_the_kernel(arguments: &SimArguments) -> Vec<(String, String)> {
    if arguments.accesses_only {
        return vec![("kernel".to_owned(), "none: the accesses alone".to_owned())];
    }
    let pages = |pages: Option<u64>, usual: &str| pages.map_or(usual.to_owned(), |pages| format!("{pages} pages"));
    let mut settings = vec![(
        "khugepaged".to_owned(),
        format!(
            "looks at {} every {} s of {} instructions; {} of a window may be missing",
            pages(arguments.pages_to_scan, "eight PMDs"),
            arguments.scan_sleep,
            arguments.instruction_rate,
            pages(arguments.max_ptes_none, "all pages but one")
        ),
    )];
    let folios: Vec<String> = arguments.also_folios.iter().map(|bytes| format_bytes(*bytes)).collect();
    if !folios.is_empty() {
        settings.push(("further folios".to_owned(), folios.join(", ")));
    }
    settings
}

fn of_trace(simulated: &Simulated) -> shown::Trace {
    let mut facts = Vec::new();
    if let Some((accesses, runs, instructions)) = simulated.counted() {
        let instructions = instructions.map_or("not counted by the trace".to_owned(), |count| count.to_string());
        facts = vec![
            ("accesses, in runs to one 4K page".to_owned(), format!("{accesses} in {runs}")),
            ("instructions".to_owned(), instructions),
            ("recorded on".to_owned(), simulated.header.architecture.clone()),
            ("recorder".to_owned(), simulated.header.recorded_by()),
        ];
    }
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
    shown::Trace {
        file: simulated.file.clone(),
        command: simulated.header.command.clone(),
        facts,
        notes: notes::of(simulated),
        cells: simulated.cells.iter().map(cell).collect(),
        sweep: simulated.swept.as_ref().map(|swept| swept.sweep.clone()),
    }
}

/// What an outcome costs, for showing.
pub fn cost(outcome: &Outcome) -> shown::Cost {
    let mapped = |mapped: &model::simulation::Mapped| shown::Mapped {
        leaf_bytes: mapped.leaf_bytes,
        group_bytes: mapped.group_bytes,
        bytes: mapped.bytes,
    };
    shown::Cost {
        page_bytes: outcome.page_bytes,
        verdict: outcome.verdict.clone(),
        per: Per::of(outcome.instructions, outcome.runs),
        first_level_misses: outcome.first_level.total(),
        second_level_misses: outcome.second_level.total(),
        walks: outcome.walks,
        walk_references: outcome.walk_references,
        least_lost_cycles: outcome.least_lost_cycles(),
        most_lost_cycles: outcome.most_lost_cycles(),
        faults: outcome.faults,
        resident_peak_bytes: outcome.costs.resident_peak_bytes,
        touched_peak_bytes: outcome.touched_peak_bytes,
        table_peak_bytes: outcome.costs.all_table_peak_bytes,
        mapped: outcome.mapped.iter().map(mapped).collect(),
        figures: figures(outcome),
    }
}

/// Every count of the outcome under the name that it has in JSON: misses by size and where entries were found, too.
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
    let found = |found: &model::simulation::Found| (format!("walk_references, {}", found.cache), found.references);
    figures.extend(outcome.found.iter().map(found));
    figures.push(("least_lost_cycles".to_owned(), outcome.least_lost_cycles()));
    figures.push(("most_lost_cycles".to_owned(), outcome.most_lost_cycles()));
    let document = json!(outcome);
    let counts = document.as_object().into_iter().flatten();
    let of_the_machine = ["walkers", "threads", "base_bytes", "page_bytes"];
    let counts = counts.filter(|(name, _)| !of_the_machine.contains(&name.as_str()));
    figures.extend(counts.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))));
    figures
}

/// A machine with every figure and what vouches for it.
pub fn of_machine(machine: &Machine) -> shown::Machine {
    let figure = |figure: &machine::Figure| shown::MachineFigure {
        key: figure.key.clone(),
        value: figure.value.clone(),
        ground: match &figure.ground {
            machine::Ground::Source(source) => Ground::Source(source.clone()),
            machine::Ground::Assumed(why) => Ground::Assumed(why.clone()),
        },
    };
    shown::Machine {
        name: machine.name.clone(),
        processor: machine.processor.clone(),
        figures: machine.figures.iter().map(figure).collect(),
    }
}
