//! [`LeaseError`]: why a lease could not be taken, used or ended, with remedies.

use std::io;
use std::path::{Path, PathBuf};

use super::holder::Holder;
use super::report::Report;

/// Why a lease could not be taken, used or ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the system settings are leased {holder}; wait for it longer (--wait), or try again when it is done")]
    Held {
        /// The process that has the lease.
        holder: Holder,
    },
    #[error("interrupted while waiting for the system settings, leased {holder}")]
    Interrupted {
        /// The process that has the lease.
        holder: Holder,
    },
    /// A directory of pagelab is not safe to use, or cannot be created.
    #[error("{}: {what}; {remedy}", path.display())]
    Directory {
        path: PathBuf,
        what: String,
        /// How to remedy it.
        remedy: String,
    },
    #[error("{path:?} is not a setting that pagelab changes: expected a file below {allowed}")]
    NotAllowed {
        path: String,
        /// The directories in which settings may be.
        allowed: String,
    },
    #[error("{value:?} is not a value for {path}: expected one line of 1 to {max} bytes")]
    NotAValue {
        /// Path of the setting.
        path: String,
        value: String,
        /// Maximum number of bytes of a value.
        max: usize,
    },
    #[error("{path} does not exist; this kernel lacks it (`pagelab doctor` shows what it has)")]
    Missing {
        /// Path of the setting.
        path: String,
    },
    /// The file system is mounted read-only.
    #[error(
        "{path} is on a file system mounted read-only, as in most containers; \
         run outside the container, or as root: mount -o remount,rw {mount}"
    )]
    ReadOnly {
        /// Path of the setting.
        path: String,
        /// The mount point of the file system.
        mount: &'static str,
    },
    #[error("not allowed to {operation} {path}; run as root, outside a container")]
    Denied {
        /// `read` or `write`.
        operation: &'static str,
        /// Path of the setting.
        path: String,
    },
    #[error("{path} does not take {value:?} (EINVAL); it takes: {takes}")]
    Refused {
        /// Path of the setting.
        path: String,
        /// The refused value.
        value: String,
        /// The current content of the file; for a choice, the choices.
        takes: String,
    },
    /// The kernel accepted the write, but the setting has another value.
    #[error("{path}: wrote {asked:?}, the kernel has {got:?}; another program may be writing it")]
    NotTaken {
        /// Path of the setting.
        path: String,
        /// The value that was written.
        asked: String,
        /// The value that the setting has.
        got: String,
    },
    /// Another process changed a leased setting in the meantime.
    #[error("{path} is {found:?}, which pagelab did not write; stop what changes it (tuned? a boot script?)")]
    ChangedByOther {
        /// Path of the setting.
        path: String,
        /// The value that was found.
        found: String,
    },
    #[error("cannot {operation} {path}: {source}")]
    Io {
        operation: &'static str,
        /// The path of the file.
        path: String,
        source: io::Error,
    },
    /// The watchdog, which would restore the settings, is gone.
    #[error("the watchdog of the lease is gone (killed?); settings are not changed without it; start again")]
    WatchdogGone,
    /// More different settings and values than the lease can record.
    #[error(
        "a lease records at most {max} settings with a value, and {path} is one more; use fewer policies at a time"
    )]
    Full {
        max: usize,
        /// The setting that exceeded the limit.
        path: String,
    },
    /// The journal of an earlier lease cannot be parsed.
    #[error(
        "{}, line {line}: {what}; the settings of an earlier lease were not put back. Look at the file: each line \
         names a setting and its value `before`. Write those back by hand, then delete the file",
        path.display()
    )]
    JournalCorrupt {
        /// Path of the journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        what: String,
    },
    /// The journal was written by another version of pagelab.
    #[error(
        "{} has the format {found:?}, expected {expected:?}; run `pagelab restore` of the version that wrote it",
        path.display()
    )]
    JournalVersion {
        /// Path of the journal.
        path: PathBuf,
        /// The schema in the journal.
        found: String,
        /// The schema that this version reads.
        expected: &'static str,
    },
    /// An earlier lease left settings that could not be restored now either.
    #[error("settings of an earlier lease could not be put back, so no new one begins:\n{report}")]
    Unrestored {
        /// The result of the attempt.
        report: Report,
    },
}

impl LeaseError {
    /// Whether a wait for another process ended without the lease.
    pub fn is_end_of_wait(&self) -> bool {
        matches!(self, LeaseError::Held { .. } | LeaseError::Interrupted { .. })
    }

    /// Whether no process can take a lease here at all: the directories of leases cannot be created or written. Settings left by
    /// an earlier lease, and a journal that could not be read, do not count.
    pub fn is_lease_impossible(&self) -> bool {
        match self {
            LeaseError::Directory { .. } => true,
            LeaseError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
            }
            _ => false,
        }
    }

    /// The error of an operation on a setting.
    pub(super) fn of_setting(operation: &'static str, path: &str, value: &str, source: io::Error) -> LeaseError {
        let path = path.to_string();
        match source.raw_os_error() {
            Some(libc::ENOENT) => LeaseError::Missing { path },
            Some(libc::EROFS) => {
                let mount = if path.starts_with("/proc/sys") { "/proc/sys" } else { "/sys" };
                LeaseError::ReadOnly { path, mount }
            }
            Some(libc::EACCES | libc::EPERM) => LeaseError::Denied { operation, path },
            Some(libc::EINVAL) => LeaseError::Refused { path, value: value.to_string(), takes: String::new() },
            _ => LeaseError::Io { operation, path, source },
        }
    }

    /// The error of an operation on one of pagelab's own files.
    pub(super) fn of_file(operation: &'static str, path: &Path, source: io::Error) -> LeaseError {
        LeaseError::Io { operation, path: path.display().to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unusable_directory_means_that_leases_are_impossible() {
        let io = |errno| LeaseError::of_file("open", Path::new("/run"), io::Error::from_raw_os_error(errno));
        assert!(io(libc::EROFS).is_lease_impossible() && io(libc::EACCES).is_lease_impossible());
        assert!(!io(libc::EMFILE).is_lease_impossible() && !io(libc::EIO).is_lease_impossible());
        let corrupt = LeaseError::JournalCorrupt { path: "/j".into(), line: 1, what: "x".into() };
        assert!(!corrupt.is_lease_impossible(), "settings of an earlier lease are in force");
    }
}
