//! `fork-exec`: the life of a short process. The parent has touched memory, whose page tables each fork copies.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use workloads::memory::{Anonymous, ForkError, base_page, fork};

use super::super::report::Report;
use super::super::{WorkloadError, arguments as common};

const PER_SECOND: u64 = 500;

/// Arguments of `fork-exec`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    work: super::Work,
    /// Memory that the parent touches before it forks, in whole base pages
    #[arg(long, default_value = "16M", value_parser = common::size)]
    bytes: u64,
    /// The program that each child executes; it must end with status 0
    #[arg(long, default_value = "true")]
    program: PathBuf,
}

impl Arguments {
    /// What ended was the program, unless it was not even begun.
    fn told(&self, error: ForkError) -> WorkloadError {
        match error {
            ForkError::Exited { status } => WorkloadError::Program { program: self.program.clone(), status },
            error => error.into(),
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let operations = arguments.work.operations(PER_SECOND)?;
    let bytes = common::whole_pages("bytes", arguments.bytes)?;
    common::room("bytes", u128::from(arguments.bytes))?;
    let mut memory = Anonymous::map(bytes)?;
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    memory.slice_mut::<u64>().iter_mut().step_by(page_words).for_each(|word| *word = 1);
    let report = arguments.work.measure("fork-exec", operations, operations, || {
        for _ in 0..operations {
            fork(0, |_| {
                let error = Command::new(&arguments.program).exec();
                eprintln!(
                    "pagelab: cannot execute {}: {error}; --program names another one",
                    arguments.program.display()
                );
                std::process::exit(127)
            })
            .map_err(|error| arguments.told(error))?;
        }
        Ok(operations)
    })?;
    Ok(report.argument("bytes", arguments.bytes).argument("program", arguments.program.display().to_string()))
}
