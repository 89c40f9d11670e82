//! What went wrong, and the exit code for it.

use std::error::Error;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::locale::as_the_locale_has_it;
use crate::status_line;
use tracer::LaunchError;

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
    /// A built-in workload did not come to a right answer.
    #[error("{message}")]
    Workload {
        /// Why.
        message: String,
        /// The exit code that it has for it.
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
    /// Bad input, from any error and its causes.
    pub fn input(error: impl Error) -> Failure {
        Failure::Input(told(&error))
    }

    /// Bad input in a file, from any error and its causes.
    pub fn about(file: &Path, error: impl Error) -> Failure {
        Failure::Input(format!("{}: {}", file.display(), told(&error)))
    }

    /// A command that could not be started.
    pub fn launch(error: &LaunchError) -> Failure {
        match error.exit_code() {
            Some(code) => Failure::Unrunnable { message: told(error), code },
            None => Failure::input(error),
        }
    }

    /// What went wrong in a guest, by the exit code that it has there.
    pub fn of_code(code: u8, message: String) -> Failure {
        match code {
            1 => Failure::Command(message),
            3 => Failure::NothingAdmitted(message),
            4 => Failure::NoResult(message),
            126 | 127 => Failure::Unrunnable { message, code },
            _ => Failure::Input(message),
        }
    }

    /// The exit code: 1 to 4, what a shell has for commands that it cannot run, or 128 and the signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Command(_) | Failure::Faults(_) => 1,
            Failure::Input(_) => 2,
            Failure::NothingAdmitted(_) => 3,
            Failure::NoResult(_) => 4,
            Failure::Unrunnable { code, .. } | Failure::Workload { code, .. } => *code,
            Failure::Interrupted(signal) | Failure::Stopped(signal, _) => {
                128u8.saturating_add(u8::try_from(*signal).unwrap_or(0))
            }
        }
    }

    /// The same, as a process ends with it.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.exit_code())
    }
}

/// An error and what caused it, each once: most messages name their cause themselves, where it says most.
pub fn told(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        let text = text.trim();
        if !told.contains(text) {
            told = format!("{told}: {text}");
        }
        cause = error.source();
    }
    told
}

/// Writes lines to standard error; nothing in them moves the cursor of a terminal. Without a reader (`2>&1 | head`) it is lost, and nothing
/// else: `eprintln!` would end the program, with settings to put back.
pub fn say(line: impl Display) {
    let line = line.to_string();
    let line = results::printable_lines(&line);
    let line = as_the_locale_has_it(&line);
    status_line::apart(|| drop(writeln!(std::io::stderr(), "{line}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose message may name its cause.
    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("the file cannot be read")]
        Bare(#[source] Inner),
        #[error("the file cannot be read ({0}); mount it")]
        Named(#[source] Inner),
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is gone")]
    struct Inner(#[source] std::io::Error);

    #[test]
    fn every_cause_is_told_once() {
        let inner = || Inner(std::io::Error::other("no such device"));
        assert_eq!(told(&Outer::Bare(inner())), "the file cannot be read: the disk is gone: no such device");
        assert_eq!(
            told(&Outer::Named(inner())),
            "the file cannot be read (the disk is gone); mount it: no such device"
        );
        let failure = Failure::about(Path::new("a.trace"), Outer::Bare(inner())).to_string();
        assert_eq!(failure, "a.trace: the file cannot be read: the disk is gone: no such device");
        assert_eq!(told(&std::io::Error::other("it")), "it");
    }
}
