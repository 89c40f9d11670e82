//! `pagelab direct-map`: shows and splits the kernel's own linear mapping of memory.

mod demote;
mod status;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Arguments of `pagelab direct-map`.
#[derive(Debug, Args)]
pub struct DirectMapArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Bytes by leaf size, splits since boot, why it is so, and which policies this boot can give
    Status(status::StatusArguments),
    /// Split the leaves of this host's direct map until it is rebooted
    Demote(demote::DemoteArguments),
}

/// Runs `pagelab direct-map`.
pub fn run(arguments: &DirectMapArguments) -> Result<(), Failure> {
    match &arguments.what {
        What::Status(arguments) => status::run(arguments),
        What::Demote(arguments) => demote::run(arguments),
    }
}
