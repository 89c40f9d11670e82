//! Why a trace cannot be simulated.

use thiserror::Error;
use trace::ReadError;

/// An error of replaying a trace.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace is of a whole machine, and the policy is one for programs.
    #[error(
        "the trace has physical addresses of a whole machine, which no page tables of a program translate; ask for direct-map-4k, direct-map-2m or direct-map-1g, or record a program (`pagelab record` without --system)"
    )]
    System,
    /// The trace is of a program, and the policy is one for machines.
    #[error(
        "the trace has virtual addresses of a program, which the direct map does not translate; record a machine (`pagelab record --system`)"
    )]
    Program,
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    Nothing,
    /// A random layout was requested, but the trace's addresses cannot be moved.
    #[error(
        "the trace has the addresses that its program had, and there is no other layout of it; record the program (`pagelab record`): under QEMU it has none of Linux's"
    )]
    NoLayout,
    /// The trace of a forked process cannot be replayed.
    #[error("the trace of a forked process, {name}: {error}")]
    Child {
        /// The name of the process's trace file.
        name: String,
        /// The error of that trace.
        #[source]
        error: Box<ReplayError>,
    },
    /// The trace of a forked process is of another recording.
    #[error(
        "its header has {what} {found}, expected {expected}: it is of another recording; remove it or record again"
    )]
    Foreign {
        /// The property that differs.
        what: &'static str,
        /// Its value in this trace.
        found: String,
        /// Its value according to the first process's trace or to the file name.
        expected: String,
    },
    #[error("no thread can be started: {0}; raise the limit of processes and threads (ulimit -u)")]
    NoThread(#[source] std::io::Error),
    /// A process with a trace is forked a second time.
    #[error(
        "process {process} is forked a second time, and its trace can be that of one process only; remove the file, or record again"
    )]
    Again { process: u32 },
    /// The chain of waiting processes, each of which forked the next, is too long.
    #[error("more than {most} processes wait for one that each of them forked; no such chain can be simulated")]
    Deep {
        /// The maximum number of processes.
        most: usize,
    },
}
