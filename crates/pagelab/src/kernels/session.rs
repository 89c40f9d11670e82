//! pagelab inside a guest: as the first process, and then as the one that measures.

use std::io::{self, Write};
use std::process::Command;

use results::store::Store;
use study::comparison::Comparison;

use super::job::{Job, Said};
use crate::compare::in_guest;
use crate::failure::Failure;

/// Where the job lies for the process that measures: in memory, because /run is the guest's own.
const JOB: &str = "/run/pagelab-job";
/// The store of the guest, which goes with it.
const STORE: &str = "/run/pagelab-results.sqlite";

/// Runs a guest where this is its first process, and does not come back then.
pub fn run_if_first() {
    if guest::first::is_first() {
        guest::first::run(command);
    }
}

/// The command that does a job.
#[expect(clippy::disallowed_methods, reason = "/run is the guest's own, in which there is no other user")]
fn command(bytes: &[u8]) -> io::Result<Command> {
    let job: Job = serde_json::from_slice(bytes)?;
    std::fs::write(JOB, bytes)?;
    let mut command = Command::new(&job.program);
    command.arg("guest-session").current_dir(&job.directory).env_clear().envs(job.variables);
    Ok(command)
}

/// Does the job of this guest, and says what came of it on standard output, a JSON document a line.
///
/// # Errors
/// There is no job, or nobody hears what is said.
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
