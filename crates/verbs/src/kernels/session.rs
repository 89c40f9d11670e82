//! pagelab inside a guest: first as the guest's PID 1, then as the process that measures.

use std::io::{self, Write};
use std::process::Command;

use results::store::Store;
use study::comparison::Comparison;

use super::job::{Job, Message};
use crate::compare::in_guest;
use crate::failure::Failure;

/// The file with the job for the measuring process. It is in memory, because /run is a tmpfs in the guest.
const JOB: &str = "/run/pagelab-job";
/// The guest's store, which is lost when the guest ends.
const STORE: &str = "/run/pagelab-results.sqlite";

/// If this process is PID 1 of a guest, runs the guest and does not return.
pub fn run_if_first() {
    if guest::first::is_first() {
        guest::first::run(command);
    }
}

/// The command that runs a job.
#[expect(clippy::disallowed_methods, reason = "/run is a tmpfs of the guest, which has no other user")]
fn command(bytes: &[u8]) -> io::Result<Command> {
    let job: Job = serde_json::from_slice(bytes)?;
    std::fs::write(JOB, bytes)?;
    let mut command = Command::new(&job.program);
    command.arg("guest-session").current_dir(&job.directory).env_clear().envs(job.variables);
    Ok(command)
}

/// Runs the job of this guest, and writes the results to standard output, one JSON document per line.
pub fn run() -> Result<(), Failure> {
    let bytes = std::fs::read(JOB).map_err(|error| {
        Failure::Input(format!(
            "guest-session runs only in a guest that pagelab has booted; expected a job in {JOB}: {error}"
        ))
    })?;
    let job: Job = serde_json::from_slice(&bytes).map_err(Failure::input)?;
    send(&Message::Ready)?;
    if !job.words.is_empty() {
        let (comparison, failure) = match measure(&job) {
            Ok((comparison, exit)) => (Some(comparison), exit.err()),
            Err(failure) => (None, Some(failure)),
        };
        if let Some(comparison) = comparison {
            send(&Message::Comparison(Box::new(comparison)))?;
        }
        if let Some(failure) = failure {
            send(&Message::Failed { code: failure.exit_code(), message: failure.to_string() })?;
        }
    }
    send(&Message::Done)
}

fn measure(job: &Job) -> Result<(Comparison, Result<(), Failure>), Failure> {
    let store = Store::open(STORE).map_err(Failure::input)?;
    in_guest::run(&job.words, job.user.as_deref(), &job.variables, job.seed, &store)
}

fn send(message: &Message) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(message).map_err(Failure::input)?;
    line.push(b'\n');
    let mut port = io::stdout().lock();
    port.write_all(&line).and_then(|()| port.flush()).map_err(Failure::input)
}
