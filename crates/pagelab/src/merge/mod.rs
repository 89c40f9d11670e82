//! `pagelab merge`: what several boots and hosts say together.

pub mod parts;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use study::stats::boots::{self, Part};

use crate::failure::Failure;
use crate::publish::{self, Forms};

/// Arguments of `pagelab merge`.
#[derive(Debug, Args)]
pub struct Merge {
    /// Stores, or what `compare --arm-of-boot --json` and `merge --json` printed
    #[arg(value_name = "STORE_OR_FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    forms: Forms,
    /// Only boots that measured this command
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Runs `pagelab merge`.
///
/// # Errors
/// A file that is neither a store nor a document of this kind; nothing to merge; different designs.
pub fn run(arguments: &Merge) -> Result<(), Failure> {
    arguments.forms.can_be_written()?;
    let mut parts = Vec::new();
    for file in &arguments.files {
        parts.extend(parts::of_file(file)?);
    }
    if !arguments.command.is_empty() {
        let wanted: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
        parts.retain(|part| part.command() == wanted.join(" "));
    }
    let merged = boots::merge(&parts).map_err(|error| Failure::Input(format!("{error}{}", choice(&parts))))?;
    publish::merged(&merged, &arguments.forms)
}

/// What there is to choose from, where commands differ.
fn choice(parts: &[Part]) -> String {
    let mut commands: Vec<String> = parts.iter().map(Part::command).collect();
    commands.sort();
    commands.dedup();
    match commands.len() {
        0 | 1 => String::new(),
        _ => format!("; choose one command with `-- COMMAND`: {}", commands.join("; ")),
    }
}
