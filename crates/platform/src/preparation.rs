//! [`run`] runs the command that precedes each trial: untimed, unmeasured, and without a policy in force.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

use policy::Exit;
use tracer::environment::Variables;
use tracer::{User, signals};

use super::error::{PlatformError, last_words};
use super::helper::{command, kill_if, wait};
use super::output::Capture;

/// Runs the command until it ends, a signal stops pagelab, or its time limit is reached. Its input is empty, and its output is
/// discarded. If it fails, [`PlatformError::PreparationFailed`] has the end of its standard error.
pub fn run(
    argv: &[OsString],
    user: &Option<User>,
    variables: &Variables,
    limit: Option<Duration>,
) -> Result<(), PlatformError> {
    let failed = |error| PlatformError::Helper { program: argv[0].clone(), error };
    let (stderr, errors) = Capture::start()?;
    let mut program = command(argv, user, variables, None).map_err(failed)?;
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let child = program.spawn().map_err(failed)?;
    drop(program); // the pipe's end that it holds would keep the output open
    let start = Instant::now();
    let mut too_slow = None;
    kill_if(&child, || {
        too_slow = limit.filter(|limit| start.elapsed() >= *limit);
        too_slow.is_some() || signals::arrived().is_some()
    });
    let exit = wait(child).map_err(failed)?;
    let printed = errors.finish().tail_text();
    let command = || argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    match (signals::arrived(), too_slow, exit) {
        (Some(_), _, _) => Err(PlatformError::Interrupted),
        (None, Some(limit), _) => {
            Err(PlatformError::PreparationTooSlow { command: command(), limit_s: limit.as_secs_f64() })
        }
        (None, None, Exit::Code(0)) => Ok(()),
        (None, None, exit) => {
            Err(PlatformError::PreparationFailed { command: command(), exit, last_words: last_words(&printed) })
        }
    }
}
