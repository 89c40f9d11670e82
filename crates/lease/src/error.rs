//! What can go wrong with a lease, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::holder::Holder;
use super::report::Report;

/// A lease that could not be had, used or ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another process has the lease.
    #[error("the system settings are leased {holder}; try again when it is done, or end it")]
    Held {
        /// Who has it.
        holder: Holder,
    },
    /// The callback of the waiting gave up.
    #[error("interrupted while waiting for the system settings, leased {holder}")]
    Interrupted {
        /// Who has them.
        holder: Holder,
    },
    /// A directory of pagelab is not safe to use, or cannot be made.
    #[error("{}: {what}; {remedy}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// A setting that pagelab does not touch.
    #[error("{path:?} is not a setting that pagelab changes: expected a file below {allowed}")]
    NotAllowed {
        /// What was asked for.
        path: String,
        /// Where settings may lie.
        allowed: String,
    },
    /// A value that no setting has.
    #[error("{value:?} is not a value for {path}: expected one line of 1 to {most} bytes")]
    NotAValue {
        /// The setting.
        path: String,
        /// The value.
        value: String,
        /// Most bytes that a value has.
        most: usize,
    },
    /// There is no such setting.
    #[error("{path} does not exist; this kernel lacks it (`pagelab doctor` says what it has)")]
    Missing {
        /// The setting.
        path: String,
    },
    /// The file system is mounted read-only.
    #[error(
        "{path} is on a file system mounted read-only, as in most containers; \
         run outside the container, or as root: mount -o remount,rw {mount}"
    )]
    ReadOnly {
        /// The setting.
        path: String,
        /// Where the file system is mounted.
        mount: &'static str,
    },
    /// The kernel does not let this process.
    #[error("not allowed to {operation} {path}; run as root, outside a container")]
    Denied {
        /// `read` or `write`.
        operation: &'static str,
        /// The setting.
        path: String,
    },
    /// The kernel does not know the value.
    #[error("{path} does not take {value:?} (EINVAL); it takes: {takes}")]
    Refused {
        /// The setting.
        path: String,
        /// The value.
        value: String,
        /// What the file shows now: for a choice, the choices.
        takes: String,
    },
    /// The kernel took the value without complaint, and has another one.
    #[error("{path}: wrote {asked:?}, the kernel has {got:?}; another program may be writing it")]
    NotTaken {
        /// The setting.
        path: String,
        /// What was written.
        asked: String,
        /// What is there.
        got: String,
    },
    /// Somebody else changed a leased setting meanwhile.
    #[error("{path} is {found:?}, which pagelab did not write; stop what changes it (tuned? a boot script?)")]
    ChangedByOther {
        /// The setting.
        path: String,
        /// Its value.
        found: String,
    },
    /// Any other failure of the system.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process that would restore the settings is gone.
    #[error("the watchdog of the lease is gone (killed?); settings are not changed without it; start again")]
    WatchdogGone,
    /// More different settings and values than the lease can remember.
    #[error("a lease remembers {most} settings and values, and {path} is one more; use fewer policies at a time")]
    Full {
        /// How many.
        most: usize,
        /// The one too many.
        path: String,
    },
    /// The journal of an earlier lease cannot be read.
    #[error(
        "{}, line {line}: {what}; the settings of an earlier lease were not put back. Look at the file: each line \
         names a setting and its value `before`. Write those back by hand, then delete the file",
        path.display()
    )]
    JournalCorrupt {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The journal was written by another version of pagelab.
    #[error(
        "{} has the format {found:?}, expected {expected:?}; run `pagelab restore` of the version that wrote it",
        path.display()
    )]
    JournalVersion {
        /// The journal.
        path: PathBuf,
        /// Its schema.
        found: String,
        /// The schema that is understood.
        expected: &'static str,
    },
    /// An earlier lease left settings that could not be put back now either.
    #[error("settings of an earlier lease could not be put back, so no new one begins:\n{report}")]
    Unrestored {
        /// What was tried.
        report: Report,
    },
}

impl LeaseError {
    /// Whether there can be no lease here at all, by anybody: its directories cannot be had, or not be written. What an earlier
    /// lease left, and what could not be read of it, is another matter.
    pub fn is_without_place(&self) -> bool {
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

    /// The error of an operation on a file of pagelab's own.
    pub(super) fn of_file(operation: &'static str, path: &Path, source: io::Error) -> LeaseError {
        LeaseError::Io { operation, path: path.display().to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_place_that_cannot_be_had_means_that_there_is_no_lease() {
        let io = |errno| LeaseError::of_file("open", Path::new("/run"), io::Error::from_raw_os_error(errno));
        assert!(io(libc::EROFS).is_without_place() && io(libc::EACCES).is_without_place());
        assert!(!io(libc::EMFILE).is_without_place() && !io(libc::EIO).is_without_place());
        let corrupt = LeaseError::JournalCorrupt { path: "/j".into(), line: 1, what: "x".into() };
        assert!(!corrupt.is_without_place(), "settings of an earlier lease are in force");
    }
}
