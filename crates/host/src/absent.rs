//! What may rightly be missing: a file that this kernel does not have, a process that has ended. Whatever else keeps a file from
//! being read is an error: it never becomes "none", "0" or "no".

use std::io;
use std::path::{Path, PathBuf};

use study::comparison::Unsupported;

use crate::read::{self, HostError, under};

/// What was read; `None` where there is no such file, or its process or device is gone.
///
/// # Errors
/// Anything else that reading returned: no permission, no file descriptor left, a failing device.
pub fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error says that there is no such thing. ESRCH comes from files of a process that has ended (fs/proc), ENODEV from
/// attributes of a device that has gone (sysfs).
pub fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV))
}

/// As [`read::text`]; `None` where the host has no such file.
///
/// # Errors
/// It is there, and cannot be read.
pub fn text(root: &Path, path: &str) -> Result<Option<String>, HostError> {
    if_there(read::text(root, path)).map_err(|source| unreadable(root, path, source))
}

/// The names in a directory, sorted; none where there is no such directory. Names that are not UTF-8 are left out: the kernel
/// gives none of those that are looked for here.
///
/// # Errors
/// It is there, and cannot be read.
pub fn names(root: &Path, path: &str) -> Result<Vec<String>, HostError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(under(root, path))? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    let names = if_there(list()).map_err(|source| unreadable(root, path, source))?;
    // A missing directory holds nothing.
    Ok(names.unwrap_or_default())
}

/// Whether the host has such a file.
///
/// # Errors
/// It cannot be told.
pub fn exists(root: &Path, path: &str) -> Result<bool, HostError> {
    under(root, path).try_exists().map_err(|source| unreadable(root, path, source))
}

/// The error of a file that is there and cannot be read.
pub fn unreadable(root: &Path, path: &str, source: io::Error) -> HostError {
    refused(under(root, path), source)
}

/// The same of a file by its path below the root.
pub fn refused(path: PathBuf, source: io::Error) -> HostError {
    let remedy = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "run as root, or make it readable",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        _ => "try again, and report it if that does not help",
    };
    HostError::Unreadable { path, source, remedy }
}

/// The error of a file that says something else than expected.
pub fn unexpected(root: &Path, path: &str, expected: &'static str, found: &str) -> HostError {
    HostError::Unexpected { path: under(root, path), expected, found: found.to_string() }
}

/// What depends on a file that cannot be read is not to be had.
impl From<HostError> for Unsupported {
    fn from(error: HostError) -> Unsupported {
        match error {
            HostError::Unreadable { path, source, remedy } => {
                Unsupported { reason: format!("cannot read {}: {source}", path.display()), remedy: remedy.into() }
            }
            HostError::Unexpected { path, expected, found } => Unsupported {
                reason: format!("{}: expected {expected}, found {found:?}", path.display()),
                remedy: "report it with the file's content".into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_absent() {
        let read = |errno| if_there(Err::<(), _>(io::Error::from_raw_os_error(errno)));
        for errno in [libc::ENOENT, libc::ESRCH, libc::ENODEV] {
            assert!(matches!(read(errno), Ok(None)), "{errno}");
        }
        for errno in [libc::EACCES, libc::EPERM, libc::EMFILE, libc::EIO, libc::EISDIR, libc::ENOTDIR] {
            assert_eq!(read(errno).unwrap_err().raw_os_error(), Some(errno));
        }
    }

    #[test]
    fn a_directory_in_place_of_a_file_and_a_file_in_place_of_a_directory_are_errors() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/a/b")).unwrap();
        std::fs::write(root.path().join("sys/file"), "text").unwrap();
        assert_eq!(text(root.path(), "/sys/none").unwrap(), None);
        assert_eq!(names(root.path(), "/sys/none").unwrap(), [""; 0]);
        assert_eq!(names(root.path(), "/sys").unwrap(), ["a", "file"]);
        let error = text(root.path(), "/sys/a").unwrap_err().to_string();
        assert!(error.contains("/sys/a") && error.contains("try again"), "{error}");
        assert!(names(root.path(), "/sys/file").is_err());
        assert!(!exists(root.path(), "/sys/none").unwrap() && exists(root.path(), "/sys/a").unwrap());
    }
}
