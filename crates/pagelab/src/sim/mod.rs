//! `pagelab sim`: what recorded traces cost on model machines under page-size policies.

mod arguments;
mod chase;
mod cost;
mod document;
mod files;
mod host_machine;
mod layouts;
pub mod linux;
pub mod machines;
mod notes;
mod report;
mod request;
mod simulate;
mod simulated;
mod sweep;
mod swept;
mod trace_notes;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::output::{print, terminal_width, write_page};
use arguments::Replay;
use request::Request;
use simulated::Simulated;

/// Arguments of `pagelab sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SimArguments {
    #[command(subcommand)]
    verb: Option<SimVerb>,
    #[command(flatten)]
    replay: Replay,
}

/// What else is simulated.
#[derive(Debug, Subcommand)]
enum SimVerb {
    /// Misses of LRU TLBs of every geometry, in one pass over each trace
    Sweep(sweep::Sweep),
    /// The reach of TLBs: a pointer chase, measured on this processor beside the model of it
    Chase(chase::Chase),
}

/// Runs `pagelab sim`.
///
/// # Errors
/// Bad input, no machine that can have any of the policies, or no simulation that came to the end of a trace.
pub fn run(arguments: &SimArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Some(SimVerb::Sweep(arguments)) => sweep::run(arguments),
        Some(SimVerb::Chase(arguments)) => chase::run(arguments),
        None => replay(&arguments.replay),
    }
}

fn replay(arguments: &Replay) -> Result<(), Failure> {
    let request = Request::of(arguments)?;
    let (mut all, used) = simulate::all(&request)?;
    layouts::simulate(&mut all, &request)?;
    let text = match arguments.json {
        true => format!("{:#}", document::json(&all, &used, &request)),
        false => report::texts(&all, &used, terminal_width()),
    };
    print(&text, arguments.json)?;
    if let Some(file) = &arguments.html {
        write_page(file, &results::html::simulation::report(&document::page(&all, &used, &request)))?;
    }
    // The first trace without an answer decides.
    all.iter().find_map(Simulated::failure).map_or(Ok(()), Err)
}
