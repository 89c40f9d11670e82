//! pagelab inside a guest: first as PID 1, then as the process that measures.

use std::io::{self, Write};
use std::process::Command;

use results::store::Store;
use study::comparison::Comparison;

use super::job::{Job, Said};
use crate::compare::in_guest;
use crate::failure::Failure;

/// The job file for the measuring process: in memory, because /run is the guest's own.
const JOB: &str = "/run/pagelab-job";
/// The guest's store, which is lost when the guest ends.
const STORE: &str = "/run/pagelab-results.sqlite";

/// Runs the guest if this is its first process; does not return in that case.
pub fn run_if_first() {
    if guest::first::is_first() {
        guest::first::run(command);
    }
}

/// The command that runs a job.
#[expect(clippy::disallowed_methods, reason = "/run is the guest's own, in which there is no other user")]
fn command(bytes: &[u8]) -> io::Result<Command> {
    let job: Job = serde_json::from_slice(bytes)?;
    std::fs::write(JOB, bytes)?;
    let mut command = Command::new(&job.program);
    command.arg("guest-session").current_dir(&job.directory).env_clear().envs(job.variables);
    Ok(command)
}

/// Runs the job of this guest, and writes the results to standard output, one JSON document per line.
///
/// # Errors
/// There is no job, or standard output cannot be written.
pub fn run() -> Result<(), Failure> {
    let bytes = std::fs::read(JOB).map_err(|error| {
        Failure::Input(format!(
            "guest-session is run by pagelab in a guest that it has booted, and there is no job: {error}"
        ))
    })?;
    let job: Job = serde_json::from_slice(&bytes).map_err(Failure::input)?;
    tell(&Said::Ready)?;
    if !job.words.is_empty() {
        let (comparison, failure) = match measured(&job) {
            Ok((comparison, exit)) => (Some(comparison), exit.err()),
            Err(failure) => (None, Some(failure)),
        };
        if let Some(comparison) = comparison {
            tell(&Said::Comparison(Box::new(comparison)))?;
        }
        if let Some(failure) = failure {
            tell(&Said::Failed { code: failure.exit_code(), message: failure.to_string() })?;
        }
    }
    tell(&Said::Done)
}

fn measured(job: &Job) -> Result<(Comparison, Result<(), Failure>), Failure> {
    let store = Store::open(STORE).map_err(Failure::input)?;
    in_guest::run(&job.words, job.user.as_deref(), &job.variables, job.seed, &store)
}

fn tell(said: &Said) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(said).map_err(Failure::input)?;
    line.push(b'\n');
    let mut port = io::stdout().lock();
    port.write_all(&line).and_then(|()| port.flush()).map_err(Failure::input)
}
