//! What goes wrong with trials, and whose fault it is.

use std::error::Error;
use std::ffi::OsString;
use std::io;

use census::CensusError;
use host::HostError;
use lease::LeaseError;
use policy::Policy;
use study::comparison::Unsupported;
use study::trial::Exit;
use tracer::LaunchError;

use crate::helper;

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The settings could not be changed or put back.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The memory of processes could not be looked at.
    #[error(transparent)]
    Census(#[from] CensusError),
    /// A pipe or a file could not be opened.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The policy cannot be given now.
    #[error("{0} cannot be given: {1}")]
    Unsupported(Policy, Unsupported),
    /// pagelab was told to stop meanwhile, and perhaps the command too: whatever it answered does not count.
    #[error("the trial was cut short because pagelab was told to stop")]
    Interrupted,
    /// The command's first process ended and others went on for too long.
    #[error(
        "the command's first process ended, and others were still at work a minute later, when they were killed; run it in \
         the foreground, or as a server with a client that drives it (--server, --ready)"
    )]
    CutShort,
    /// Settings that have another value than before.
    #[error("not every setting could be put back: {0}")]
    NotRestored(String),
    /// A figure that the command was to print.
    #[error(transparent)]
    Extract(Box<dyn Error + Send + Sync>),
    /// The server ended before its client.
    #[error("the server ended by itself ({exit}); {}", why_a_server_ended(*exit, printed))]
    ServerDied {
        /// How.
        exit: Exit,
        /// What it last printed.
        printed: String,
    },
    /// The server was gone before it was ready.
    #[error("the server ended before it was ready")]
    ServerEnded,
    /// Memory is not fragmented, or no longer.
    #[error("--fragmented: the process that fragments free memory has ended; {last_words}")]
    NotFragmented {
        /// What it last wrote to standard error, as a part of a sentence.
        last_words: String,
    },
    /// khugepaged does not sleep.
    #[error(
        "khugepaged was still at work after {patience_s} s; see /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan, \
         or leave --khugepaged off out"
    )]
    Restless {
        /// How long it had.
        patience_s: f64,
    },
    /// The server did not become ready.
    #[error("the server was not ready after {patience_s} s; see --ready and --ready-time")]
    NotReady {
        /// How long it had.
        patience_s: f64,
    },
    /// What is to be run before each trial failed.
    #[error("--prepare: {command:?} failed ({exit}); {last_words}")]
    Unprepared {
        /// The command line.
        command: String,
        /// How it ended.
        exit: Exit,
        /// What it last wrote to standard error, as a part of a sentence.
        last_words: String,
    },
    /// What is to be made before any trial was not.
    #[error("its command failed ({exit}); {last_words}")]
    Unmade {
        /// How it ended.
        exit: Exit,
        /// What it last wrote to standard error, as a part of a sentence.
        last_words: String,
    },
    /// What is to be run before each trial took too long.
    #[error("--prepare: {command:?} took longer than {limit_s} s (--trial-time), and was ended")]
    PreparationTooSlow {
        /// The command line.
        command: String,
        /// How long it had.
        limit_s: f64,
    },
    /// A client, a probe or a preparation could not be run.
    #[error("{program:?} could not be run: {error}")]
    Helper {
        /// The program.
        program: OsString,
        /// What the kernel answered.
        #[source]
        error: io::Error,
    },
}

/// What is to blame for a trial that could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The command, its server or its preparation: it failed.
    Command,
    /// Settings and files of the system.
    System,
    /// One of the commands cannot be run at all.
    Unrunnable {
        /// What a shell says then: 127 where it is not there, 126 where it is.
        exit_code: u8,
    },
}

impl PlatformError {
    /// What is to blame.
    pub fn blame(&self) -> Blame {
        use PlatformError::{Helper, Host, Io, Launch, Lease, NotFragmented, NotRestored, Restless, Unsupported};
        let exit_code = match self {
            Lease(_) | Host(_) | Io(_) | Unsupported(..) | NotRestored(_) | Restless { .. } | NotFragmented { .. } => {
                return Blame::System;
            }
            Launch(error) => error.exit_code(),
            Helper { program, error } => helper::exit_code(program, error),
            _ => None,
        };
        exit_code.map_or(Blame::Command, |exit_code| Blame::Unrunnable { exit_code })
    }
}

/// What is known of why a server ended. One that forks and lets its first process end, as daemons do, is
/// over for the tracer.
fn why_a_server_ended(exit: Exit, printed: &str) -> String {
    match (printed.is_empty(), exit) {
        (true, Exit::Code(0)) => last_words(printed) + "; if it goes to the background, tell it not to",
        _ => last_words(printed),
    }
}

/// What a program printed last, as a part of a sentence.
pub fn last_words(printed: &str) -> String {
    if printed.is_empty() { "it printed nothing".into() } else { format!("its last words: {printed}") }
}
