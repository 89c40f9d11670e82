//! `pagelab merge`: merges the results of several boots and hosts.

pub mod parts;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use study::stats::boots::{self, MeasuredBoots};

use crate::failure::Failure;
use crate::publish::{Forms, publish_merged};

/// Arguments of `pagelab merge`.
#[derive(Debug, Args)]
pub struct Merge {
    /// Stores, or what `compare --arm-of-boot --json` and `merge --json` printed
    #[arg(value_name = "STORE_OR_FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only boots that measured exactly this command line; with a server, its command line and then that of the client
    #[arg(last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    forms: Forms,
}

/// Runs `pagelab merge`.
pub fn run(arguments: &Merge) -> Result<(), Failure> {
    arguments.forms.can_be_written()?;
    let mut parts = Vec::new();
    for file in &arguments.files {
        parts.extend(parts::of_file(file)?);
    }
    let parts = of_command(parts, &arguments.command)?;
    let merged = boots::merge(&parts).map_err(|error| {
        let known = commands(&parts);
        if known.len() < 2 {
            return Failure::input(error);
        }
        Failure::Input(format!("{error}; choose one command with `-- COMMAND`: {}", known.join("; ")))
    })?;
    publish_merged(&merged, &arguments.forms)
}

/// Keeps the boots that measured `command`. An empty command keeps all boots.
fn of_command(mut parts: Vec<MeasuredBoots>, command: &[OsString]) -> Result<Vec<MeasuredBoots>, Failure> {
    if command.is_empty() {
        return Ok(parts);
    }
    let wanted = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let known = commands(&parts);
    parts.retain(|part| part.command() == wanted);
    // That there are no boots at all is reported when they are merged.
    if parts.is_empty() && !known.is_empty() {
        return Err(Failure::Input(format!(
            "no boot measured {wanted:?}; the measured commands are: {}",
            known.join("; ")
        )));
    }
    Ok(parts)
}

/// The commands that boots measured, without duplicates.
fn commands(parts: &[MeasuredBoots]) -> Vec<String> {
    let mut commands: Vec<String> = parts.iter().map(MeasuredBoots::command).collect();
    commands.sort();
    commands.dedup();
    commands
}
