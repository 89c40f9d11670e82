//! What can keep a process from being inspected.

use std::io;
use std::path::PathBuf;

use host::HostError;

use crate::CensusError;

/// Why there is no inspection, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// There is no such process.
    #[error(
        "there is no process {pid} here: it has ended, belongs to another PID namespace (ask by the number that it has in \
         this /proc), or /proc hides it (mount option hidepid: ask as root or as its user)"
    )]
    NoSuchProcess {
        /// The process.
        pid: u32,
    },
    /// The process has ended, and nobody has waited for it.
    #[error(
        "process {pid} ({name}) is a zombie: it has ended and has no memory; its parent {parent} has not waited for it"
    )]
    Zombie {
        /// The process.
        pid: u32,
        /// Its name.
        name: String,
        /// Its parent.
        parent: u32,
    },
    /// A thread of the kernel.
    #[error(
        "{pid} ({name}) is a thread of the kernel, which has no memory of its own (pagelab direct-map status shows its map)"
    )]
    KernelThread {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// There is no such process in a capture.
    #[error(
        "there is no process {pid} in the capture {root:?}: expected a directory proc/{pid} with maps, smaps and stat"
    )]
    NotCaptured {
        /// The process.
        pid: u32,
        /// The capture.
        root: PathBuf,
    },
    /// Its number was given to another process while it was looked at.
    #[error("process {pid} ended during the inspection, and its number belongs to another process now: ask again")]
    Replaced {
        /// The process.
        pid: u32,
    },
    /// A file of the process does not look as it should.
    #[error("{path} is not as expected ({what}); the kernel or the capture may be newer than this program")]
    Unexpected {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no such control group.
    #[error("{path:?} is no control group: expected a directory below /sys/fs/cgroup with a file cgroup.procs")]
    NoSuchGroup {
        /// As it was named.
        path: PathBuf,
    },
    /// A control group could not be read.
    #[error("{path:?}: {error}")]
    Group {
        /// Its directory.
        path: PathBuf,
        /// What the kernel answered.
        #[source]
        error: io::Error,
    },
    /// The process could not be looked at.
    #[error(transparent)]
    Census(#[from] CensusError),
    /// The system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}
