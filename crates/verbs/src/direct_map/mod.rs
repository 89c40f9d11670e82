//! `pagelab direct-map`: shows and splits the kernel's own linear mapping of memory.

mod demote;
mod status;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Arguments of `pagelab direct-map`.
#[derive(Debug, Args)]
pub struct DirectMapArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show bytes by leaf size, splits since boot, the reasons, and which policies this boot can have
    Status(status::StatusArguments),
    /// Split the leaves of this host's direct map until it is rebooted
    Demote(demote::DemoteArguments),
}

/// Runs `pagelab direct-map`.
pub fn run(arguments: &DirectMapArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Status(arguments) => status::run(arguments),
        Verb::Demote(arguments) => demote::run(arguments),
    }
}
