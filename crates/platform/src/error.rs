//! [`PlatformError`]: why a trial failed. [`Blame`]: whether the command or the system is the cause.

use std::error::Error;
use std::ffi::OsString;
use std::io;

use census::CensusError;
use host::HostError;
use lease::LeaseError;
use policy::Exit;
use policy::Policy;
use policy::Unsupported;
use tracer::LaunchError;

use crate::helper;

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The settings could not be changed or restored.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The memory of processes could not be examined.
    #[error(transparent)]
    Census(#[from] CensusError),
    /// A pipe or a file could not be opened.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0} cannot be given: {1}")]
    Unsupported(Policy, Unsupported),
    /// A signal stopped pagelab, and perhaps the command too: its answer does not count.
    #[error("the trial was cut short because pagelab was stopped")]
    Interrupted,
    /// The command's first process ended and others continued for too long.
    #[error(
        "the command's first process ended, and others were still at work a minute later, when they were killed; run it in \
         the foreground, or as a server with a client that drives it (--server, --ready)"
    )]
    CutShort,
    /// The kernel has too few contiguous free blocks for the pages of a pool.
    #[error("the pool got {got} of {asked} pages: there is not enough contiguous free memory")]
    PoolTooSmall {
        /// Pages that were requested.
        asked: u64,
        /// Pages in the pool.
        got: u64,
    },
    #[error("not every setting could be put back: {0}")]
    NotRestored(String),
    /// A figure could not be read from the command's output.
    #[error(transparent)]
    Extract(Box<dyn Error + Send + Sync>),
    #[error("the server ended by itself ({exit}); {}", why_a_server_ended(*exit, printed))]
    ServerDied {
        /// How the server ended.
        exit: Exit,
        /// The last text that it printed.
        printed: String,
    },
    #[error("the server ended before it was ready")]
    ServerEnded,
    /// Memory is not fragmented, or no longer is.
    #[error("--fragmented: the process that fragments free memory has ended; {last_words}")]
    NotFragmented {
        /// The end of its standard error, as part of a sentence.
        last_words: String,
    },
    /// khugepaged is not asleep.
    #[error(
        "khugepaged was still at work after {patience_s} s; see /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan, \
         or leave --khugepaged off out"
    )]
    KhugepagedBusy {
        /// How long it was waited for, in seconds.
        patience_s: f64,
    },
    #[error("the server was not ready after {patience_s} s; see --ready and --ready-time")]
    NotReady {
        /// How long it was waited for, in seconds.
        patience_s: f64,
    },
    /// The command to run before each trial failed.
    #[error("--prepare: {command:?} failed ({exit}); {last_words}")]
    PreparationFailed {
        command: String,
        exit: Exit,
        /// The end of its standard error, as part of a sentence.
        last_words: String,
    },
    /// The command to run once before all trials failed.
    #[error("its command failed ({exit}); {last_words}")]
    MakeFailed {
        exit: Exit,
        /// The end of its standard error, as part of a sentence.
        last_words: String,
    },
    /// The command to run before each trial took too long.
    #[error("--prepare: {command:?} took longer than {limit_s} s (--trial-time), and was ended")]
    PreparationTooSlow {
        command: String,
        /// The time limit in seconds.
        limit_s: f64,
    },
    /// A client, a probe or a preparation could not be run.
    #[error("{program:?} could not be run: {error}")]
    Helper {
        program: OsString,
        #[source]
        error: io::Error,
    },
}

/// The cause of a trial that could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The command, its server or its preparation failed.
    Command,
    /// Settings or files of the system.
    System,
    /// One of the commands cannot be run at all.
    Unrunnable {
        /// The exit code that a shell returns then: 127 where the program does not exist, 126 where it does.
        exit_code: u8,
    },
}

impl PlatformError {
    /// The cause of this error.
    pub fn blame(&self) -> Blame {
        use PlatformError::{Helper, Host, Io, KhugepagedBusy, Launch, Lease, NotFragmented, NotRestored, Unsupported};
        let exit_code = match self {
            Lease(_)
            | Host(_)
            | Io(_)
            | Unsupported(..)
            | NotRestored(_)
            | KhugepagedBusy { .. }
            | NotFragmented { .. } => {
                return Blame::System;
            }
            Launch(error) => error.exit_code(),
            Helper { program, error } => helper::exit_code(program, error),
            _ => None,
        };
        exit_code.map_or(Blame::Command, |exit_code| Blame::Unrunnable { exit_code })
    }
}

/// The known reason why a server ended. For the tracer, a server that forks and lets its first process end, as daemons do, has
/// ended.
fn why_a_server_ended(exit: Exit, printed: &str) -> String {
    match (printed.is_empty(), exit) {
        (true, Exit::Code(0)) => last_words(printed) + "; if it forks into the background, keep it in the foreground",
        (true, _) => {
            last_words(printed)
                + "; run it by itself to see why: --server needs a command that runs until it is stopped"
        }
        _ => last_words(printed),
    }
}

/// The text that a program printed last, as part of a sentence.
pub fn last_words(printed: &str) -> String {
    if printed.is_empty() {
        "it printed nothing".into()
    } else {
        format!("its last words: {}", printed.lines().collect::<Vec<_>>().join("; "))
    }
}
