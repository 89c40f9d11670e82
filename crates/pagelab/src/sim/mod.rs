//! `pagelab sim`: what recorded traces cost on model machines under page-size policies.

mod arguments;
mod geometry;
mod machines;
mod report;

use std::fs::File;
use std::io::{BufReader, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use model::machine::Machine;
use model::policy::{ModelPolicy, Unsupported};
use model::replay::{Replayed, infer, replay};
use model::simulation::{Outcome, Simulation};
use model::space::Physical;
use serde_json::{Value, json};
use trace::{Header, Reader};

pub use arguments::SimArguments;
pub use machines::{described, document as machine_document};

use crate::compare::{ignore_closed_pipe, terminal_width};
use crate::failure::{Failure, say};

/// What became of one trace.
pub struct Simulated {
    /// The file.
    pub file: String,
    /// What the trace says about itself.
    pub header: Header,
    /// What was met when it was read.
    pub replayed: Replayed,
    /// Each machine under each policy, in the order asked for.
    pub cells: Vec<Cell>,
}

/// One machine under one policy.
pub enum Cell {
    /// It ran.
    Ran(Box<Outcome>),
    /// It cannot.
    Refused(Unsupported),
}

/// Runs `pagelab sim`.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    if arguments.geometry {
        return geometry::run(arguments);
    }
    let named = machines::chosen(&arguments.machines)?;
    let mut all = Vec::new();
    for file in &arguments.files {
        all.push(simulate(file, &named, arguments)?);
    }
    let ran = all.iter().flat_map(|simulated| &simulated.cells).any(|cell| matches!(cell, Cell::Ran(_)));
    let text = if arguments.json {
        let traces: Vec<Value> = all.iter().map(report::document).collect();
        let settings = json!({
            "memory_bytes": arguments.memory,
            "fragmentation_ratio": arguments.fragmentation,
            "seed": arguments.seed,
        });
        format!("{:#}", json!({ "schema": "pagelab.sim/1", "settings": settings, "traces": traces }))
    } else {
        all.iter().map(|simulated| report::text(simulated, terminal_width())).collect::<Vec<_>>().join("\n\n")
    };
    ignore_closed_pipe(writeln!(std::io::stdout(), "{text}"))?;
    if ran {
        Ok(())
    } else {
        Err(Failure::NothingAdmitted("no machine can have any of the policies; the reasons stand above".to_owned()))
    }
}

fn simulate(file: &Path, named: &[Machine], arguments: &SimArguments) -> Result<Simulated, Failure> {
    let header = opened(file, &ProgressBar::hidden())
        .and_then(|from| Reader::new(from).map_err(|error| about(file, error)))?
        .header()
        .clone();
    let machines =
        if named.is_empty() { vec![machines::for_architecture(&header.architecture)?] } else { named.to_vec() };
    let policies = arguments.policies();
    let physical = Physical { bytes: arguments.memory, fragmentation: arguments.fragmentation, seed: arguments.seed };
    let (mut simulations, mut refused) = (Vec::new(), Vec::new());
    for (machine, policy) in machines.iter().flat_map(|machine| policies.iter().map(move |policy| (machine, policy))) {
        match Simulation::new(machine, policy, &physical) {
            Ok(simulation) => {
                simulation.admits(&header.filter).map_err(|error| about(file, error))?;
                simulations.push(simulation);
                refused.push(None);
            }
            Err(unsupported) => refused.push(Some(unsupported)),
        }
    }
    let replayed = if simulations.is_empty() {
        Replayed::default()
    } else {
        replayed(file, &mut simulations, arguments.threads())?
    };
    let mut ran = simulations.iter();
    let mut cells = Vec::new();
    for unsupported in refused {
        match unsupported {
            Some(unsupported) => cells.push(Cell::Refused(unsupported)),
            None => {
                let outcomes = ran.next().map(Simulation::outcome);
                cells.extend(outcomes.transpose().map_err(Failure::input)?.map(|outcome| Cell::Ran(Box::new(outcome))));
            }
        }
    }
    for damage in &replayed.damage {
        say(format_args!("pagelab: {}: {damage}; it was passed over", file.display()));
    }
    Ok(Simulated { file: file.display().to_string(), header, replayed, cells })
}

fn replayed(file: &Path, simulations: &mut [Simulation], threads: usize) -> Result<Replayed, Failure> {
    let bar = bar(file);
    let inferred = infer(opened(file, &ProgressBar::hidden())?).map_err(|error| about(file, error))?;
    let done = replay(opened(file, &bar)?, inferred.as_deref(), simulations, threads);
    bar.finish_and_clear();
    done.map_err(|error| about(file, error))
}

fn opened(file: &Path, bar: &ProgressBar) -> Result<impl std::io::Read, Failure> {
    let opened = File::open(file).map_err(|error| about(file, error))?;
    Ok(bar.wrap_read(BufReader::with_capacity(1 << 20, opened)))
}

fn about(file: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Input(format!("{}: {error}", file.display()))
}

/// A bar over the bytes of a file; hidden where standard error is no terminal.
fn bar(file: &Path) -> ProgressBar {
    let bytes = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed:>5} {bar:24} {percent:>3} % {wide_msg} {eta} left");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_message(file.display().to_string());
    bar
}

/// The policies that are simulated where none is named.
fn usual_policies() -> Vec<ModelPolicy> {
    ["base", "mthp-64k", "thp"].iter().filter_map(|name| name.parse().ok()).collect()
}
