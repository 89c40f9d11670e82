//! pagelab inside a guest: first as the guest's PID 1, then as the process that measures.

use std::io::{self, Write};
use std::process::Command;

use results::store::Store;

use super::job::{Job, Message, Task};
use crate::capabilities;
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
    if let Some(bytes) = job.swap_bytes {
        let swap = guest::swap_on(bytes).err().map(|error| error.to_string());
        let limits = guest::memory_groups_on().err().map(|error| error.to_string());
        for why in swap.into_iter().chain(limits) {
            send(&Message::Lacks { why })?;
        }
    }
    for (task, work) in job.tasks.iter().enumerate() {
        if let Err(failure) = done(task, work, &job)? {
            send(&Message::Failed { task, code: failure.exit_code(), message: failure.to_string() })?;
        }
    }
    send(&Message::Done)
}

/// Runs a task and sends its result. The inner error is that of the task, which may have a result all the same.
fn done(task: usize, work: &Task, job: &Job) -> Result<Result<(), Failure>, Failure> {
    match work {
        Task::Compare(words) => match compare(words, job) {
            Ok((comparison, exit)) => {
                send(&Message::Comparison { task, comparison: Box::new(comparison) })?;
                Ok(exit)
            }
            Err(failure) => Ok(Err(failure)),
        },
        Task::Capabilities(words) => match capabilities::of_words(words) {
            Ok(matrix) => {
                send(&Message::Capabilities { task, matrix: Box::new(matrix) })?;
                Ok(Ok(()))
            }
            Err(failure) => Ok(Err(failure)),
        },
    }
}

fn compare(words: &[String], job: &Job) -> Result<in_guest::Outcome, Failure> {
    let store = Store::open(STORE).map_err(Failure::input)?;
    in_guest::run(words, job.user.as_deref(), &job.variables, job.seed, &store)
}

fn send(message: &Message) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(message).map_err(Failure::input)?;
    line.push(b'\n');
    let mut port = io::stdout().lock();
    port.write_all(&line).and_then(|()| port.flush()).map_err(Failure::input)
}
