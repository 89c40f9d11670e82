//! Runs the measured work: a command, or a server with its client.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use policy::hugetlb::RefusedRequest;
use study::trial::{Answer, Stated};
use tracer::{Ended, Launch, LaunchError, Leftovers, Rewriting, Witness, signals};

use crate::error::PlatformError;
use crate::output::{self, Capture, Captured};
use crate::preparation;
use crate::server::{self, Client, ClientRun};
use crate::witness::TrialWitness;
use crate::work::Work;

/// How long processes that outlive the command may be idle before they are killed.
pub const GRACE: Duration = Duration::from_millis(200);

/// The result of a run, before it becomes a record.
pub struct Run {
    pub ended: Ended,
    pub driven: Option<ClientRun>,
    pub output: Captured,
    pub errors: Captured,
}

/// Runs the command, or the server with its client, under the tracer.
pub fn run_traced(
    work: &Work,
    rewriting: &Rewriting,
    witness: &mut TrialWitness,
    timed: &AtomicBool,
) -> Result<Run, PlatformError> {
    let traced = |launch: &Launch| tracer::run(launch, rewriting, Some(witness), Leftovers::KillAfter(GRACE));
    run(work, rewriting.disable_thp, timed, traced)
}

/// The result of a run outside a comparison.
pub struct Once {
    /// The answer of the command, or of the client.
    pub answer: Answer,
    /// Pages of pools that the program asked for and that the kernel refused.
    pub refused_requests: Vec<RefusedRequest>,
}

/// Runs the work once, outside a comparison, with the caller's witness. The system settings that `rewriting` needs are in force.
pub fn run_once(work: &Work, rewriting: &Rewriting, witness: &mut dyn Witness) -> Result<Once, PlatformError> {
    if let Some(command) = &work.prepare {
        preparation::run(command, &work.user, &work.variables, work.trial_time)?;
    }
    let timed = AtomicBool::new(false);
    let traced = |launch: &Launch| tracer::run(launch, rewriting, Some(witness), Leftovers::KillAfter(GRACE));
    let run = run(work, rewriting.disable_thp, &timed, traced)?;
    if signals::arrived().is_some() {
        return Err(PlatformError::Interrupted);
    }
    Ok(Once { answer: answer(work, &run), refused_requests: run.ended.refused_requests })
}

/// Runs the command, or the server with its client, through `start`. `timed` is set while the client runs.
pub fn run(
    work: &Work,
    disable_thp: bool,
    timed: &AtomicBool,
    start: impl FnOnce(&Launch) -> Result<Ended, LaunchError>,
) -> Result<Run, PlatformError> {
    let (stdout, output) = stdout(work)?;
    let (stderr, errors) = Capture::start()?;
    let traced = work.server.as_ref().map_or(&work.command, |server| &server.command);
    let mut launch = Launch {
        command: traced.clone(),
        user: work.user.clone(),
        variables: work.variables.clone(),
        stdin: Some(stdin(work)?),
        stdout: None,
        stderr: None,
        disable_thp,
        own_session: work.own_session,
        control_group: None,
        limit: work.trial_time,
    };
    let Some(server) = &work.server else {
        (launch.stdout, launch.stderr) = (Some(stdout), Some(stderr));
        let ended = start(&launch);
        drop(launch); // our ends of the pipes, so that the readers come to an end
        return Ok(Run { ended: ended?, driven: None, output: output.finish(), errors: errors.finish() });
    };
    let (server_stderr, server_errors) = Capture::start()?;
    (launch.stdout, launch.stderr) = (Some(server_stderr.try_clone()?), Some(server_stderr));
    launch.variables.extend(server.variables.iter().cloned());
    let (user, variables) = (work.user.clone(), work.variables.clone());
    let own_session = work.own_session;
    let client = Client { command: work.command.clone(), user, variables, own_session, stdout, stderr };
    let over = AtomicBool::new(false);
    let (ended, driven) = std::thread::scope(|threads| {
        let driver = std::thread::Builder::new().name("client".into());
        let driver = driver.spawn_scoped(threads, || server::drive(server, client, &over, timed))?;
        let ended = start(&launch);
        over.store(true, Ordering::SeqCst);
        Ok::<_, PlatformError>((ended, driver.join().expect("the driver of a server does not panic")))
    })?;
    drop(launch);
    let (ended, server_errors) = (ended?, server_errors.finish());
    if ended.time_was_up {
        return Ok(Run { ended, driven: None, output: output.finish(), errors: server_errors });
    }
    let driven = driven.map_err(|error| match error {
        PlatformError::ServerEnded => {
            PlatformError::ServerDied { exit: ended.exit, printed: server_errors.tail_text() }
        }
        other => other,
    })?;
    if !driven.server_survived {
        return Err(PlatformError::ServerDied { exit: ended.exit, printed: server_errors.tail_text() });
    }
    Ok(Run { ended, driven: Some(driven), output: output.finish(), errors: errors.finish() })
}

/// The destination of standard output. It is read only if something needs it; the reader then costs a little time.
fn stdout(work: &Work) -> io::Result<(OwnedFd, Capture)> {
    let (pipe, capture) = Capture::start()?;
    if work.check_output || work.select.is_some() || work.expected.is_some() || work.extract.is_some() {
        return Ok((pipe, capture));
    }
    Ok((nowhere()?.into(), capture))
}

#[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

fn stdin(work: &Work) -> io::Result<OwnedFd> {
    let file = work.input.as_ref().map_or_else(|| File::open("/dev/null"), |open| open());
    Ok(file?.into())
}

/// The hash that must be the same under every policy: of the selected part of the output, or of all of it.
fn hashed(work: &Work, output: &Captured) -> Option<String> {
    let selected = work.select.as_ref().and_then(|select| select(&output.start));
    let of_all = || (work.check_output || work.select.is_some()).then(|| output.sha256.clone());
    selected.map(|selected| output::sha256(&selected)).or_else(of_all)
}

/// The most characters that are kept of an unexpected answer.
const MAX_FOUND_CHARS: usize = 200;

/// Compares an output with the stated answer.
fn stated(work: &Work, output: &Captured) -> Stated {
    let Some(expected) = &work.expected else { return Stated::Nothing };
    let selected = work.select.as_ref().and_then(|select| select(&output.start));
    let is_whole = selected.is_some() || !output.is_truncated;
    let found = selected.unwrap_or_else(|| output.start.clone());
    let end = |text: &[u8]| text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    let (found, expected_bytes) = (&found[..end(&found)], expected.as_bytes());
    if is_whole && *found == expected_bytes[..end(expected_bytes)] {
        return Stated::Met;
    }
    let found = String::from_utf8_lossy(found).chars().take(MAX_FOUND_CHARS).collect();
    Stated::Missed { expected: expected.clone(), found }
}

pub fn answer(work: &Work, run: &Run) -> Answer {
    Answer {
        exit: run.driven.map_or(run.ended.exit, |driven| driven.exit),
        stdout_sha256: hashed(work, &run.output),
        too_slow: run.ended.time_was_up,
        stated: stated(work, &run.output),
    }
}
