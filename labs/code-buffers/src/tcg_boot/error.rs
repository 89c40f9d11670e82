//! Errors of a boot ([`BootError`]).

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use census::CensusError;
use tracer::LaunchError;

/// Why a boot has no result.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("{error}; QEMU is Debian's qemu-system-arm, and --qemu names another one")]
    NoEmulator {
        /// The program that was not found, and where it was searched.
        #[source]
        error: LaunchError,
    },
    /// A file of the guest cannot be read.
    #[error(
        "the guest has no {file}: {error}; `{made_by}` fetches and assembles it (Debian, no root), --guest \
         names another directory with linux and initrd"
    )]
    NoGuest {
        file: PathBuf,
        /// The command that makes the file.
        made_by: &'static str,
        #[source]
        error: io::Error,
    },
    /// There is no cache directory to search.
    #[error(
        "neither XDG_CACHE_HOME nor HOME is an absolute path, so the guest's directory is not known; name it with --guest"
    )]
    NoCache,
    /// QEMU did not start or its pipes broke.
    #[error("cannot run {program}: {error}")]
    NotRun {
        program: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("--populate-code: cannot write to the memory of QEMU (process {pid}): {error}; leave it out")]
    NotPopulated {
        /// QEMU's process ID.
        pid: u32,
        #[source]
        error: io::Error,
    },
    #[error("cannot read the memory of QEMU (process {pid}): {error}")]
    NotRead {
        /// QEMU's process ID.
        pid: u32,
        #[source]
        error: io::Error,
    },
    #[error("QEMU {ended} before the guest had powered off; its output:\n{output}")]
    Ended {
        ended: String,
        /// The last lines of QEMU's and the guest's output.
        output: String,
    },
    /// The guest did not power off in time.
    #[error("the guest has not powered off within {limit_s} s (--limit); it was killed. Its last lines:\n{output}")]
    Hangs {
        /// The time limit in seconds.
        limit_s: u64,
        /// The last lines of QEMU's and the guest's output.
        output: String,
    },
    /// The guest did not end by powering off from its init.
    #[error(
        "wrong answer: expected the guest to print {expected:?} and to power off, found {found}; its output:\n{output}"
    )]
    WrongEnd {
        /// The expected line.
        expected: &'static str,
        /// How the guest ended.
        found: String,
        /// The last lines of QEMU's and the guest's output.
        output: String,
    },
    /// An answer of QEMU's monitor cannot be parsed.
    #[error("QEMU's monitor: expected {expected}, found {found:?}; this is known to work with QEMU 7.2")]
    Monitor {
        /// The expected answer.
        expected: &'static str,
        /// The actual answer.
        found: String,
    },
    #[error("QEMU's monitor refuses {command}: {answer}; output of QEMU and the guest:\n{output}")]
    Refused {
        command: String,
        /// The monitor's error.
        answer: String,
        /// The last lines of QEMU's and the guest's output.
        output: String,
    },
    /// The mappings of the code buffer could not be read.
    #[error("QEMU's code buffer: {0}")]
    Census(#[from] CensusError),
    /// No mapping of QEMU is executable and writable.
    #[error(
        "QEMU (process {0}) has no writable and executable anonymous mapping, so its code buffer is not known; this \
         workload cannot see the buffer of a QEMU that maps it twice (split-wx)"
    )]
    NoBuffer(u32),
    #[error("cannot read QEMU's CPU time: {0}")]
    Usage(#[source] io::Error),
    #[error("stopped by signal {0}; QEMU was killed")]
    Interrupted(i32),
}

impl BootError {
    /// The exit code: 2 for missing files, 128 plus the signal number for an interruption, 1 for later errors.
    pub fn exit_code(&self) -> u8 {
        match self {
            BootError::NoEmulator { .. } | BootError::NoGuest { .. } | BootError::NoCache => 2,
            BootError::Interrupted(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            _ => 1,
        }
    }

    /// The error for a QEMU that ended with this status.
    pub fn ended(status: ExitStatus, output: String) -> BootError {
        BootError::Ended { ended: format!("ended ({status})"), output }
    }
}
