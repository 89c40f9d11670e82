//! What went wrong, and the exit code for it.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::compare::progress;
use crate::output::as_the_locale_has_it;
use metal::tracer::LaunchError;

/// Why a verb did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The measured command failed or gave a wrong answer.
    #[error("{0}")]
    Command(String),
    /// Bad arguments or input, or a system that does not let pagelab work.
    #[error("{0}")]
    Input(String),
    /// A command cannot be run.
    #[error("{message}")]
    Unrunnable {
        /// Why.
        message: String,
        /// What a shell ends with: 127 where there is no such command, 126 where it cannot be executed.
        code: u8,
    },
    /// There is no result in the time that was given.
    #[error("{0}")]
    NoResult(String),
    /// Nothing could be admitted.
    #[error("{0}")]
    NothingAdmitted(String),
    /// The tables that were checked break rules.
    #[error("{0}")]
    Faults(String),
    /// pagelab was told to stop by a signal.
    #[error("stopped by signal {0}; what was measured until then is stored, and system settings are restored")]
    Interrupted(i32),
    /// A signal stopped what leaves nothing in a store; the words say what it has left.
    #[error("stopped by signal {0}; {1}")]
    Stopped(i32, &'static str),
}

impl Failure {
    /// Bad input, from any error.
    pub fn input(error: impl Display) -> Failure {
        Failure::Input(error.to_string())
    }

    /// A command that could not be started.
    pub fn launch(error: &LaunchError) -> Failure {
        match error.exit_code() {
            Some(code) => Failure::Unrunnable { message: error.to_string(), code },
            None => Failure::input(error),
        }
    }

    /// The exit code: 1 to 4, what a shell has for commands that it cannot run, or 128 and the signal.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Command(_) | Failure::Faults(_) => 1,
            Failure::Input(_) => 2,
            Failure::NothingAdmitted(_) => 3,
            Failure::NoResult(_) => 4,
            Failure::Unrunnable { code, .. } => *code,
            Failure::Interrupted(signal) | Failure::Stopped(signal, _) => {
                128u8.saturating_add(u8::try_from(*signal).unwrap_or(0))
            }
        })
    }
}

/// Writes a line to standard error. Where nobody reads it any more (`2>&1 | head`) it is lost, and nothing
/// else: `eprintln!` would end the program, with settings to put back.
pub fn say(line: impl Display) {
    let line = line.to_string();
    let line = as_the_locale_has_it(&line);
    progress::apart(|| drop(writeln!(std::io::stderr(), "{line}")));
}
