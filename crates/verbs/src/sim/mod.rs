//! `pagelab sim`: simulates what recorded traces cost on model machines under page-size policies.

mod ahead;
mod arguments;
mod base_page;
mod chase;
mod copied;
pub mod cost;
mod document;
mod files;
mod host_machine;
mod layouts;
pub mod linux;
pub mod machines;
mod noted_machines;
mod notes;
mod report;
mod request;
mod run_time;
mod screen;
mod simulate;
mod simulated;
mod source;
mod sweep;
mod swept;
mod trace_notes;

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Args, Subcommand};
use model::machine::Machine;
use model::policy::ModelPolicy;
use results::simulation::Cell as CostCell;

use crate::failure::Failure;
use crate::output::{print, terminal_width, write_page};
use arguments::Replay;
pub use arguments::parse_policy;
use notes::Notes;
use request::Request;
pub use simulated::{Cell, Simulated};

/// Arguments of `pagelab sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SimArguments {
    #[command(subcommand)]
    verb: Option<SimVerb>,
    #[command(flatten)]
    replay: Replay,
}

/// Other simulations.
#[derive(Debug, Subcommand)]
enum SimVerb {
    /// Misses of LRU TLBs of every geometry, in one pass over each trace
    Sweep(sweep::Sweep),
    /// The reach of TLBs: a pointer chase, measured on this processor and compared with its model
    Chase(chase::Chase),
}

/// Runs `pagelab sim`. Fails if no machine can apply any of the policies, or if no simulation reached the end of a trace.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Some(SimVerb::Sweep(arguments)) => sweep::run(arguments),
        Some(SimVerb::Chase(arguments)) => chase::run(arguments),
        None => replay(&arguments.replay),
    }
}

/// The costs of a trace on machines under policies.
pub struct TraceCosts {
    /// Each machine under each policy.
    pub cells: Vec<CostCell>,
    /// Notes on the limits of the figures, by machine.
    pub notes: BTreeMap<String, Vec<String>>,
}

/// Simulates a trace for a study, without output. Programs count as linked for every base page size.
///
/// # Errors
/// The trace is damaged or cut off, or a machine is wrong.
pub fn costs_of(
    trace: &Path,
    machines: &[String],
    policies: &[ModelPolicy],
    threads: Option<u32>,
) -> Result<TraceCosts, Failure> {
    let request = Request::of_trace(trace, machines, policies, None)?;
    let request = Request { is_relinked: true, threads: arguments::threads(threads), ..request };
    let (all, used) = simulate::all(&request)?;
    all.iter().try_for_each(Simulated::check_complete)?;
    let of_machine = |machine: &Machine| {
        let notes = all.iter().flat_map(|one| Notes::of_machine(one, &machine.name).all());
        (machine.name.clone(), notes.chain(machines::assumed_note(machine)).collect())
    };
    let notes = used.iter().map(of_machine).collect();
    Ok(TraceCosts { cells: all.iter().flat_map(cost::cells).collect(), notes })
}

/// Simulates one trace, without output. Without machines, on the one of the trace's architecture.
///
/// # Errors
/// The trace is damaged or cut off, or a machine or the file with settings is wrong.
pub fn of_trace(
    trace: &Path,
    machines: &[String],
    policies: &[ModelPolicy],
    linux: Option<&Path>,
) -> Result<Simulated, Failure> {
    let (mut all, _) = simulate::all(&Request::of_trace(trace, machines, policies, linux)?)?;
    let simulated = all.swap_remove(0);
    simulated.check_complete()?;
    Ok(simulated)
}

/// Whether a file is a trace of pagelab.
pub fn is_trace(file: &Path) -> bool {
    let mut begin = [0; trace::MAGIC.len()];
    let is_read = std::fs::File::open(file).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
    is_read.is_ok() && begin == trace::MAGIC
}

/// Whether a file is a trace of this command with the same window: at most `most` instructions per thread, after skipping
/// `skipped`.
pub fn is_trace_of(file: &Path, command: &[String], most: Option<u64>, skipped: Option<u64>) -> bool {
    let is_of = |header: trace::Header| {
        let of_header = header.window.map(|window| window.skip_instructions);
        (header.command.as_slice(), header.max_instructions, of_header) == (command, most, skipped)
    };
    file.exists() && files::header(file).is_ok_and(is_of)
}

fn replay(arguments: &Replay) -> Result<(), Failure> {
    let request = Request::of(arguments)?;
    let (mut all, used) = simulate::all(&request)?;
    layouts::simulate(&mut all, &request)?;
    let text = if arguments.json {
        format!("{:#}", document::json(&all, &used, &request))
    } else {
        let print_trace = if arguments.full { report::text } else { screen::text };
        let texts: Vec<String> = all.iter().map(|one| print_trace(one, &used, terminal_width())).collect();
        texts.join("\n\n")
    };
    print(&text, arguments.json)?;
    if let Some(file) = &arguments.html {
        write_page(file, &results::html::simulation::report(&document::page(&all, &used, &request)))?;
    }
    // The first trace without a result determines the error.
    all.iter().find_map(Simulated::failure).map_or(Ok(()), Err)
}
