//! `pagelab table`: explains, builds and checks page tables.

mod build;
mod census;
mod check;
mod decode;
pub mod describe;
pub mod format_name;
pub mod formats;
mod index;
pub mod level;
pub mod number;
mod request;
mod tree;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::lab_command::WithLabs;

/// Arguments of `pagelab table`.
#[derive(Debug, Args)]
pub struct TableArguments {
    #[command(subcommand)]
    verb: WithLabs<TableVerb>,
}

/// The verbs of `pagelab table`.
#[derive(Debug, Subcommand)]
pub(crate) enum TableVerb {
    /// Explain entries field by field, or how an address is looked up
    Decode(decode::Decode),
    /// Build tables for mappings, and write them as an image of physical memory
    Build(build::Build),
    /// Check tables in a dump of memory against the rules of their architecture
    Check(check::Check),
}

/// Runs `pagelab table`.
pub fn run(arguments: &TableArguments) -> Result<(), Failure> {
    match &arguments.verb {
        WithLabs::Own(TableVerb::Decode(arguments)) => decode::run(arguments),
        WithLabs::Own(TableVerb::Build(arguments)) => build::run(arguments),
        WithLabs::Own(TableVerb::Check(arguments)) => check::run(arguments),
        WithLabs::OfLab(command, arguments) => command.run(arguments),
    }
}
