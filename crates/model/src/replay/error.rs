//! Errors of replaying a trace.

use thiserror::Error;
use trace::ReadError;

/// Why a trace cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace is of a whole machine, and the policy is for programs.
    #[error(
        "the trace has physical addresses of a whole machine, which the page tables of a program do not translate; name direct-map-4k, direct-map-2m or direct-map-1g, or record a program (`pagelab record` without --system)"
    )]
    System,
    /// The trace is of a program, and the policy is for whole machines.
    #[error(
        "the trace has virtual addresses of a program, which the direct map does not translate; record a whole machine (`pagelab record --system`)"
    )]
    Program,
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    NoAccesses,
    /// A random layout was requested, but the program was not recorded under an emulator, so its layout cannot change.
    #[error(
        "the trace has the addresses that the program had when it ran, so no other layout can be simulated; record the program under QEMU (`pagelab record`)"
    )]
    NoLayout,
    /// The trace of a forked process cannot be replayed.
    #[error("the trace of a forked process, {name}: {error}")]
    Child {
        /// The name of the process's trace file.
        name: String,
        /// Why it cannot be replayed.
        #[source]
        error: Box<ReplayError>,
    },
    /// The trace of a forked process belongs to another recording.
    #[error(
        "its header has {what} {found}, expected {expected}: it belongs to another recording; remove it or record again"
    )]
    OtherRecording {
        /// The property that differs.
        what: &'static str,
        /// Its value in this trace.
        found: String,
        /// The value that the first process's trace or the file name implies.
        expected: String,
    },
    /// A thread for simulations cannot be started.
    #[error("no thread can be started: {0}; raise the limit of processes and threads (ulimit -u)")]
    NoThread(#[source] std::io::Error),
    /// A process with a trace is forked a second time.
    #[error(
        "process {process} is forked a second time, but a trace belongs to only one process; remove the file, or record again"
    )]
    ForkedTwice { process: u32 },
    /// Too many processes are alive, each the parent of the next.
    #[error(
        "more than {max} processes wait for a process that they forked; a chain of forks that long cannot be simulated"
    )]
    TooDeep {
        /// The maximum number of processes.
        max: usize,
    },
}
