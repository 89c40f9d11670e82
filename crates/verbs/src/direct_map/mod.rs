//! `pagelab direct-map`: shows the kernel's own linear mapping of memory.

pub mod status;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::lab_command::WithLabs;

/// Arguments of `pagelab direct-map`.
#[derive(Debug, Args)]
pub struct DirectMapArguments {
    #[command(subcommand)]
    verb: WithLabs<Verb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show bytes by leaf size, splits since boot, the reasons, and which policies this boot can have
    Status(status::StatusArguments),
}

/// Runs `pagelab direct-map`.
pub fn run(arguments: &DirectMapArguments) -> Result<(), Failure> {
    match &arguments.verb {
        WithLabs::Own(Verb::Status(arguments)) => status::run(arguments),
        WithLabs::OfLab(command, arguments) => command.run(arguments),
    }
}
