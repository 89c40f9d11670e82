//! [`InspectError`]: what can prevent the inspection of a process.

use std::io;
use std::path::PathBuf;

use host::HostError;

use crate::CensusError;

/// Why there is no inspection, and how to remedy it.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no such process.
    #[error(
        "there is no process {pid} here: it has ended, belongs to another PID namespace (give the PID that it has in \
         this /proc), or /proc hides it (mount option hidepid: run as root or as its user)"
    )]
    NoSuchProcess {
        /// PID of the process.
        pid: u32,
    },
    /// The process has ended, and its parent has not reaped it.
    #[error(
        "process {pid} ({name}) is a zombie: it has ended and has no memory; its parent {parent} has not waited for it"
    )]
    Zombie {
        /// PID of the process.
        pid: u32,
        name: String,
        /// PID of its parent.
        parent: u32,
    },
    /// A kernel thread has no address space.
    #[error(
        "{pid} ({name}) is a kernel thread, which has no memory of its own (pagelab direct-map status shows the kernel's map)"
    )]
    KernelThread { pid: u32, name: String },
    /// The capture does not contain the process.
    #[error(
        "there is no process {pid} in the capture {root:?}: expected a directory proc/{pid} with maps, smaps and stat"
    )]
    NotCaptured {
        /// PID of the process.
        pid: u32,
        /// Directory of the capture.
        root: PathBuf,
    },
    #[error(
        "expected a PID, or the name of a running process (its own, or that of its program's file), found {name:?}: /proc shows \
         no process of that name{} (pagelab inspect --all lists them)",
        nearest.as_ref().map_or(String::new(), |nearest| format!("; the nearest is {nearest:?}"))
    )]
    NoSuchName {
        /// The name that was given.
        name: String,
        /// The most similar name of a process.
        nearest: Option<String>,
    },
    /// Its PID was reused for another process during the inspection.
    #[error("process {pid} ended during the inspection, and its PID belongs to another process now: inspect again")]
    Replaced {
        /// PID of the process.
        pid: u32,
    },
    /// A file of the process has unexpected content.
    #[error("{path} has unexpected content ({what}); the kernel or the capture may be newer than this program")]
    Unexpected {
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    #[error("{path:?} is no control group: expected a directory below /sys/fs/cgroup with a file cgroup.procs")]
    NoSuchGroup {
        /// The path as given.
        path: PathBuf,
    },
    #[error("{path:?}: {error}")]
    Group {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The process could not be inspected.
    #[error(transparent)]
    Census(#[from] CensusError),
    /// The system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}
