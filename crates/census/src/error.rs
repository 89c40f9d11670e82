//! [`CensusError`]: what can prevent a census.

use std::io;
use std::path::Path;

use host::maps::MalformedLine;

use super::frame_scan::FrameScanError;

/// What cannot be read, and how to remedy it.
#[derive(Debug, thiserror::Error)]
pub enum CensusError {
    /// There is no such process any more, or none that is visible to this user.
    #[error("there is no process {pid} any more, or /proc hides it (mount option hidepid): {path} is not there")]
    Gone {
        /// PID of the process.
        pid: u32,
        /// The file that was to be read.
        path: String,
    },
    /// This user may not inspect the process.
    #[error(
        "{path}: {error}; process {pid} may be inspected by root, with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, and by a user who \
         may trace it (same user, a program that this user may read, not setuid, /proc/sys/kernel/yama/ptrace_scope)"
    )]
    Forbidden {
        /// PID of the process.
        pid: u32,
        /// The file that was to be read.
        path: String,
        #[source]
        error: io::Error,
    },
    /// The process has no memory: it is a kernel thread, or a thread that has already ended. Another thread of the same process
    /// may still have memory.
    #[error(
        "process {pid} has no address space: it is a kernel thread, or has ended (give the TID of a thread that still runs)"
    )]
    NoAddressSpace {
        /// PID or TID.
        pid: u32,
    },
    #[error("{path}: {error}")]
    Io {
        path: String,
        #[source]
        error: io::Error,
    },
    /// A file has an unexpected format.
    #[error(transparent)]
    Malformed(#[from] MalformedLine),
    /// Which pages of a mapping PMD leaves map cannot be distinguished without PAGEMAP_SCAN.
    #[error(
        "which pages of the mapping at {start:#x} are mapped by PMD leaves is known since Linux 6.7 (PAGEMAP_SCAN): {source}"
    )]
    UnknownLeaves {
        /// The first address of the mapping.
        start: u64,
        source: FrameScanError,
    },
    /// A part of a mapping cannot be distinguished from the rest without PAGEMAP_SCAN.
    #[error("a part of a mapping can be inspected since Linux 6.7 (PAGEMAP_SCAN); this kernel has only smaps")]
    NeedsPagemapScan,
}

impl CensusError {
    /// The error without the PID, for a reader who sees many runs of one program.
    pub fn without_pid(&self) -> String {
        let number = match self {
            CensusError::Gone { pid, .. }
            | CensusError::Forbidden { pid, .. }
            | CensusError::NoAddressSpace { pid } => pid,
            _ => return self.to_string(),
        };
        let text = self.to_string();
        let text = text.replace(&format!("/proc/{number}/"), "/proc/PID/");
        text.replace(&format!("process {number}"), "the process")
    }

    pub(super) fn io(pid: u32, path: &str, error: io::Error) -> CensusError {
        let gone = || matches!(Path::new(&format!("/proc/{pid}")).try_exists(), Ok(false));
        let path = path.to_string();
        match error.raw_os_error() {
            Some(libc::ESRCH) => CensusError::Gone { pid, path },
            Some(libc::ENOENT) if gone() => CensusError::Gone { pid, path },
            Some(libc::EACCES | libc::EPERM) => CensusError::Forbidden { pid, path, error },
            _ => CensusError::Io { path, error },
        }
    }
}
