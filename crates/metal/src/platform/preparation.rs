//! What is run before each trial: untimed, unmeasured, and with no policy in force.

use std::ffi::OsString;
use std::process::Stdio;

use study::trial::Exit;

use super::helper::{command, kill_if, wait};
use super::output::Capture;
use super::{PlatformError, last_words};
use crate::environment::Variables;
use crate::signals;
use crate::tracer::{Usage, User};

/// Runs the command to its end, or until pagelab is told to stop. Its input is empty, its output goes nowhere.
///
/// # Errors
/// It cannot be run, or it fails: [`PlatformError::Unprepared`] has the end of what it wrote to standard error.
pub fn run(words: &[OsString], user: &Option<User>, variables: &Variables) -> Result<(), PlatformError> {
    let failed = |error| PlatformError::Helper { program: words[0].clone(), error };
    let (stderr, errors) = Capture::start()?;
    let mut program = command(words, user, variables);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let child = program.spawn().map_err(failed)?;
    drop(program); // the pipe's end that it holds would keep the output open
    kill_if(&child, || signals::arrived().is_some());
    let exit = wait(child, &mut Usage::default()).map_err(failed)?;
    let printed = errors.finish().tail_text();
    match (signals::arrived(), exit) {
        (Some(_), _) => Err(PlatformError::Interrupted),
        (None, Exit::Code(0)) => Ok(()),
        (None, exit) => {
            let command = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
            Err(PlatformError::Unprepared { command, exit, last_words: last_words(&printed) })
        }
    }
}
