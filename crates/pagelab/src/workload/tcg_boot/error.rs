//! A boot that did not end as it should.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use census::CensusError;
use tracer::LaunchError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// There is no such program.
    #[error("{error}; QEMU is Debian's qemu-system-arm, and --qemu names another one")]
    NoEmulator {
        /// What was looked for, and where.
        #[source]
        error: LaunchError,
    },
    /// The guest is not there.
    #[error(
        "the guest has no {file}: {error}; `{made_by}` fetches and assembles it (Debian, no root), --guest \
         names another directory with linux and initrd"
    )]
    NoGuest {
        /// The file.
        file: PathBuf,
        /// What makes it.
        made_by: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// There is no cache directory to look into.
    #[error(
        "neither XDG_CACHE_HOME nor HOME is an absolute path, so the guest's place is not known; name it with --guest"
    )]
    NoCache,
    /// QEMU did not start or its pipes broke.
    #[error("cannot run {program}: {error}")]
    NotRun {
        /// QEMU.
        program: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The code buffer could not be brought into memory.
    #[error("--populate-code: cannot write to the memory of QEMU (process {pid}): {error}; leave it out")]
    NotPopulated {
        /// QEMU.
        pid: u32,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The code buffer could not be read.
    #[error("cannot read the memory of QEMU (process {pid}): {error}")]
    NotRead {
        /// QEMU.
        pid: u32,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// QEMU ended before the guest had powered off.
    #[error("QEMU {ended} before the guest had powered off; it said:\n{said}")]
    Ended {
        /// How.
        ended: String,
        /// The last lines of it and of the guest.
        said: String,
    },
    /// The guest did not power off in time.
    #[error("the guest has not powered off within {limit_s} s (--limit); it was killed. Its last lines:\n{said}")]
    Hangs {
        /// The limit.
        limit_s: u64,
        /// The last lines.
        said: String,
    },
    /// The guest ended otherwise than by powering off after init.
    #[error("wrong answer: expected the guest to say {expected:?} and to power off, found {found}; it said:\n{said}")]
    WrongEnd {
        /// The line.
        expected: &'static str,
        /// What happened.
        found: String,
        /// The last lines.
        said: String,
    },
    /// QEMU's monitor said something that is not understood.
    #[error("QEMU's monitor: expected {expected}, found {found:?}; this is known to work with QEMU 7.2")]
    Monitor {
        /// What was asked for.
        expected: &'static str,
        /// The answer.
        found: String,
    },
    /// QEMU's monitor refused a command.
    #[error("QEMU's monitor refuses {command}: {answer}; QEMU and the guest said:\n{said}")]
    Refused {
        /// The command.
        command: String,
        /// What it says of it.
        answer: String,
        /// The last lines of it and of the guest.
        said: String,
    },
    /// The code buffer could not be looked at.
    #[error("QEMU's code buffer: {0}")]
    Census(#[from] CensusError),
    /// No mapping of QEMU is executable and writable.
    #[error(
        "QEMU (process {0}) has no writable and executable anonymous mapping, so its code buffer is not known; this \
         workload cannot see the buffer of a QEMU that maps it twice (split-wx)"
    )]
    NoBuffer(u32),
    /// getrusage failed.
    #[error("cannot read what QEMU cost: {0}")]
    Usage(#[source] io::Error),
    /// pagelab was told to stop.
    #[error("stopped by signal {0}; QEMU was killed")]
    Interrupted(i32),
}

impl BootError {
    /// 2 for what is missing, 128 and the signal for an interruption, 1 for everything that happened later.
    pub fn exit_code(&self) -> u8 {
        match self {
            BootError::NoEmulator { .. } | BootError::NoGuest { .. } | BootError::NoCache => 2,
            BootError::Interrupted(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            _ => 1,
        }
    }

    /// QEMU ended, as a status says it.
    pub fn ended(status: ExitStatus, said: String) -> BootError {
        BootError::Ended { ended: format!("ended ({status})"), said }
    }
}
