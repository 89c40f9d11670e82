//! What went wrong, and the exit code for it.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::output::as_the_locale_has_it;
use crate::progress;

/// Why a verb did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The measured command failed or gave a wrong answer.
    #[error("{0}")]
    Command(String),
    /// Bad arguments or input, or a system that does not let pagelab work.
    #[error("{0}")]
    Input(String),
    /// Nothing could be admitted.
    #[error("{0}")]
    NothingAdmitted(String),
    /// The tables that were checked break rules.
    #[error("{0}")]
    Faults(String),
    /// pagelab was told to stop by a signal.
    #[error("stopped by signal {0}; what was measured until then is stored, and system settings are restored")]
    Interrupted(i32),
    /// A signal stopped what cannot be undone; its state was printed.
    #[error("stopped by signal {0}; the state it was left in is printed above")]
    Stopped(i32),
}

impl Failure {
    /// Bad input, from any error.
    pub fn input(error: impl Display) -> Failure {
        Failure::Input(error.to_string())
    }

    /// The exit code: 1, 2 or 3, or 128 and the signal.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Command(_) | Failure::Faults(_) => 1,
            Failure::Input(_) => 2,
            Failure::NothingAdmitted(_) => 3,
            Failure::Interrupted(signal) | Failure::Stopped(signal) => {
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
