//! Errors of pagelab's verbs and their exit codes.

use std::error::Error;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::locale::fit_to_locale;
use crate::status_line;
use policy::Policy;
use tracer::LaunchError;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The measured command failed or returned a wrong answer.
    #[error("{0}")]
    Command(String),
    /// Arguments or input are invalid, or the system does not allow the operation.
    #[error("{0}")]
    Input(String),
    #[error("{message}")]
    Unrunnable {
        message: String,
        /// The exit code that a shell uses: 127 if the command does not exist, 126 if it cannot be executed.
        code: u8,
    },
    /// A built-in workload failed or computed a wrong answer.
    #[error("{message}")]
    Workload {
        message: String,
        /// The workload's exit code for this failure.
        code: u8,
    },
    /// The time limit ended the measurement before there was a result.
    #[error("{0}")]
    NoResult(String),
    #[error("{0}")]
    NothingAdmitted(String),
    /// A requirement of memory is not met, or it is not known whether it is.
    #[error("{0}")]
    Unmet(String),
    #[error("{0}")]
    Faults(String),
    /// A kernel does not hold what was asserted.
    #[error("{0}")]
    Worse(String),
    /// A kernel has no result to judge: `git bisect run` skips its commit.
    #[error("{0}")]
    Untestable(String),
    /// Nothing can be judged with these arguments: `git bisect run` ends.
    #[error("{0}")]
    Unusable(String),
    #[error("stopped by signal {0}; what was measured until then is stored, and system settings are restored")]
    Interrupted(i32),
    /// A signal stopped a verb that stores nothing; the string says in which state it left the command or the system.
    #[error("stopped by signal {0}; {1}")]
    Stopped(i32, &'static str),
}

impl Failure {
    /// An input failure from any error and its causes.
    pub fn input(error: impl Error) -> Failure {
        Failure::Input(error_chain(&error))
    }

    /// An input failure about a file, from any error and its causes.
    pub fn about(file: &Path, error: impl Error) -> Failure {
        Failure::Input(format!("{}: {}", file.display(), error_chain(&error)))
    }

    /// The failure for a command that could not be started.
    pub fn launch(error: &LaunchError) -> Failure {
        let is_policy = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<Policy>().is_ok());
        let hint = match error {
            LaunchError::NotFound(name) if is_policy(name) => "; to name several policies, separate them by commas",
            _ => "",
        };
        match error.exit_code() {
            Some(code) => Failure::Unrunnable { message: error_chain(error) + hint, code },
            None => Failure::input(error),
        }
    }

    /// The failure for an exit code of pagelab in a guest.
    pub fn of_code(code: u8, message: String) -> Failure {
        match code {
            1 => Failure::Command(message),
            3 => Failure::NothingAdmitted(message),
            4 => Failure::NoResult(message),
            126 | 127 => Failure::Unrunnable { message, code },
            _ => Failure::Input(message),
        }
    }

    /// The exit code: 1 to 5, a shell's code for commands that it cannot run, or 128 plus the signal number.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Command(_) | Failure::Faults(_) | Failure::Worse(_) => 1,
            Failure::Untestable(_) => 125,
            Failure::Unusable(_) => 255,
            Failure::Input(_) => 2,
            Failure::NothingAdmitted(_) => 3,
            Failure::NoResult(_) => 4,
            Failure::Unmet(_) => 5,
            Failure::Unrunnable { code, .. } | Failure::Workload { code, .. } => *code,
            Failure::Interrupted(signal) | Failure::Stopped(signal, _) => {
                128u8.saturating_add(u8::try_from(*signal).unwrap_or(0))
            }
        }
    }

    /// Whether a failure in a guest may be due to its kernel, so that guests with other kernels can still be booted.
    pub fn concerns_one_kernel(&self) -> bool {
        matches!(self, Failure::Command(_) | Failure::NothingAdmitted(_) | Failure::NoResult(_))
    }

    /// The exit code as [`ExitCode`].
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.exit_code())
    }
}

/// Formats an error and its causes without repetition, because most messages already contain the message of their
/// cause.
pub fn error_chain(error: &dyn Error) -> String {
    let mut error_chain = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        let text = text.trim();
        if !error_chain.contains(text) {
            error_chain = format!("{error_chain}: {text}");
        }
        cause = error.source();
    }
    error_chain
}

/// Writes lines to standard error, with control characters escaped so that they cannot move a terminal's cursor. If standard
/// error has no reader (`2>&1 | head`), the output is lost and nothing else happens; `eprintln!` would panic, before
/// settings are restored.
pub fn report(line: impl Display) {
    let line = line.to_string();
    let line = results::printable_lines(&line);
    let line = fit_to_locale(&line);
    status_line::suspend(|| drop(writeln!(std::io::stderr(), "{line}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error whose message may or may not contain that of its cause.
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
    fn reports_every_cause_once() {
        let inner = || Inner(std::io::Error::other("no such device"));
        assert_eq!(error_chain(&Outer::Bare(inner())), "the file cannot be read: the disk is gone: no such device");
        assert_eq!(
            error_chain(&Outer::Named(inner())),
            "the file cannot be read (the disk is gone); mount it: no such device"
        );
        let failure = Failure::about(Path::new("a.trace"), Outer::Bare(inner())).to_string();
        assert_eq!(failure, "a.trace: the file cannot be read: the disk is gone: no such device");
        assert_eq!(error_chain(&std::io::Error::other("it")), "it");
    }
}
