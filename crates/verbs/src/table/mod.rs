//! `pagelab table`: explains, builds, splits and checks page tables.

mod build;
mod census;
mod check;
mod decode;
pub mod describe;
mod format_name;
pub mod formats;
mod index;
mod level;
mod number;
mod request;
pub(crate) mod split;
mod tree;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Arguments of `pagelab table`.
#[derive(Debug, Args)]
pub struct TableArguments {
    #[command(subcommand)]
    verb: TableVerb,
}

/// The verbs of `pagelab table`.
#[derive(Debug, Subcommand)]
enum TableVerb {
    /// Explain entries field by field, or how an address is looked up
    Decode(decode::Decode),
    /// Build tables for mappings, and write them as an image of physical memory
    Build(build::Build),
    /// Measure KVM's eager split of arm64 stage 2, and what its variants save
    Split(split::Split),
    /// Check tables in a dump of memory against the rules of their architecture
    Check(check::Check),
}

/// Runs `pagelab table`.
pub fn run(arguments: &TableArguments) -> Result<(), Failure> {
    match &arguments.verb {
        TableVerb::Decode(arguments) => decode::run(arguments),
        TableVerb::Build(arguments) => build::run(arguments),
        TableVerb::Split(arguments) => split::run(arguments),
        TableVerb::Check(arguments) => check::run(arguments),
    }
}
