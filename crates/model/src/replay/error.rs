//! Why a trace cannot be simulated.

use thiserror::Error;
use trace::ReadError;

/// A trace that cannot be simulated.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is of a whole machine, and the policy is one for programs.
    #[error(
        "the trace has physical addresses of a whole machine, which no page tables of a program translate; ask for direct-map-4k, direct-map-2m or direct-map-1g, or record a program (`pagelab record` without --system)"
    )]
    System,
    /// It is of a program, and the policy is one for machines.
    #[error(
        "the trace has virtual addresses of a program, which the direct map does not translate; record a machine (`pagelab record --system`)"
    )]
    Program,
    /// There is nothing in it.
    #[error("the trace has no accesses; expected some: see `pagelab trace info`")]
    Nothing,
    /// Addresses are not to be chosen anew.
    #[error(
        "the trace has the addresses that its program had, and there is no other layout of it; record the program (`pagelab record`): under QEMU it has none of Linux's"
    )]
    NoLayout,
    /// The trace of a process that it forked.
    #[error("the trace of a forked process, {name}: {error}")]
    Child {
        /// The name of the file.
        name: String,
        /// What is wrong with it.
        #[source]
        error: Box<ReplayError>,
    },
    /// That of a forked process is of another recording.
    #[error(
        "its header has {what} {found}, expected {expected}: it is of another recording; remove it or record again"
    )]
    Foreign {
        /// What differs.
        what: &'static str,
        /// What it is.
        found: String,
        /// What the first process's trace or its name says.
        expected: String,
    },
    /// A thread of simulations cannot be started.
    #[error("no thread can be started: {0}; raise the limit of processes and threads (ulimit -u)")]
    NoThread(#[source] std::io::Error),
    /// A process is forked that has a trace and was there before.
    #[error(
        "process {process} is forked a second time, and its trace can be that of one process only; remove the file, or record again"
    )]
    Again {
        /// Its number.
        process: u32,
    },
    /// Processes that forked one another.
    #[error("more than {most} processes wait for one that each of them forked; no such chain can be simulated")]
    Deep {
        /// How many can.
        most: usize,
    },
}
