//! [`make`] runs the command that comes once before all trials: in a directory, with a script as its input, untimed and
//! without a policy in force.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use policy::Exit;
use tracer::environment::Variables;
use tracer::{User, signals};

use crate::error::{PlatformError, last_words};
use crate::helper::{command, kill_if, wait};
use crate::output::Capture;

/// Runs the command to its end, or until a signal stops pagelab. If it fails, [`PlatformError::MakeFailed`] has the end of its standard
/// error.
pub fn make(
    argv: &[OsString],
    user: &Option<User>,
    directory: &Path,
    stdin: File,
    stdout: Stdio,
) -> Result<(), PlatformError> {
    let failed = |error| PlatformError::Helper { program: argv[0].clone(), error };
    let (stderr, errors) = Capture::start()?;
    let mut program = command(argv, user, &Variables::default(), None).map_err(failed)?;
    program.current_dir(directory).stdin(stdin).stdout(stdout).stderr(stderr);
    let child = program.spawn().map_err(failed)?;
    drop(program); // the pipe's end that it holds would keep the output open
    kill_if(&child, || signals::arrived().is_some());
    let exit = wait(child).map_err(failed)?;
    let printed = errors.finish().tail_text();
    match (signals::arrived(), exit) {
        (Some(_), _) => Err(PlatformError::Interrupted),
        (None, Exit::Code(0)) => Ok(()),
        (None, exit) => Err(PlatformError::MakeFailed { exit, last_words: last_words(&printed) }),
    }
}
