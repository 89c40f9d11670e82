//! Files that a host may lack. A file that exists but cannot be read is an error with the file's name and a remedy.

use std::io;
use std::path::PathBuf;

use policy::Unsupported;

use crate::absence::if_exists;
use crate::read::HostError;
use crate::root::Root;

/// The whole content of a file; `None` where the host has no such file.
pub fn text(root: &Root, path: &str) -> Result<Option<String>, HostError> {
    if_exists(root.text(path)).map_err(|source| unreadable(root, path, source))
}

/// The names in a directory, sorted; empty where the directory does not exist.
pub fn names(root: &Root, path: &str) -> Result<Vec<String>, HostError> {
    let names = if_exists(root.entries(path)).map_err(|source| unreadable(root, path, source))?;
    // A missing directory counts as empty.
    Ok(names.unwrap_or_default())
}

/// Whether the host has this file.
pub fn exists(root: &Root, path: &str) -> Result<bool, HostError> {
    root.has(path).map_err(|source| unreadable(root, path, source))
}

/// The error for a file that exists but cannot be read.
pub fn unreadable(root: &Root, path: &str, source: io::Error) -> HostError {
    if root.is_live() { refused(root.under(path), source) } else { root.unreadable(path, source) }
}

/// As [`unreadable`], for a path that already includes the root.
pub fn refused(path: PathBuf, source: io::Error) -> HostError {
    let remedy = match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "run as root, or make it readable",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        _ => "try again, and report it if that does not help",
    };
    HostError::Unreadable { path, source, remedy }
}

/// The error for a file with unexpected content.
pub fn unexpected(root: &Root, path: &str, expected: &'static str, found: &str) -> HostError {
    HostError::Unexpected { path: root.under(path), expected, found: found.to_string() }
}

/// A policy or feature that depends on an unreadable file is not available.
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
    fn a_directory_in_place_of_a_file_and_a_file_in_place_of_a_directory_are_errors() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("sys/a/b")).unwrap();
        std::fs::write(tree.path().join("sys/file"), "text").unwrap();
        let root = Root::open(tree.path()).unwrap();
        assert_eq!(text(&root, "/sys/none").unwrap(), None);
        assert_eq!(names(&root, "/sys/none").unwrap(), [""; 0]);
        assert_eq!(names(&root, "/sys").unwrap(), ["a", "file"]);
        let error = text(&root, "/sys/a").unwrap_err().to_string();
        assert!(error.contains("/sys/a") && error.contains("expected a regular file"), "{error}");
        assert!(names(&root, "/sys/file").is_err());
        assert!(!exists(&root, "/sys/none").unwrap() && exists(&root, "/sys/a").unwrap());
    }
}
