//! [`resolve`] finds the file of a program, as the shell would.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::LaunchError;
use crate::refusal::Refusal;

/// Finds a program as the shell would.
pub fn resolve(program: &OsStr) -> Result<PathBuf, LaunchError> {
    if program.as_bytes().contains(&b'/') {
        return executable(Path::new(program));
    }
    if program.is_empty() {
        return Err(LaunchError::NotFound(OsString::new()));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    let mut refused = None;
    for candidate in candidates {
        match executable(&candidate) {
            Ok(found) => return Ok(found),
            Err(LaunchError::NotExecutable(_, Refusal::Directory) | LaunchError::NotFound(_)) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| LaunchError::NotFound(program.to_os_string())))
}

fn executable(path: &Path) -> Result<PathBuf, LaunchError> {
    let refused = |refusal| Err(LaunchError::NotExecutable(path.to_path_buf(), refusal));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused(Refusal::Unreachable),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(LaunchError::NotFound(path.as_os_str().to_os_string()))
        }
        Err(error) => Err(LaunchError::Resources(io::Error::new(error.kind(), format!("{}: {error}", path.display())))),
        Ok(meta) if meta.is_dir() => refused(Refusal::Directory),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => refused(Refusal::NoPermission),
        Ok(_) => Ok(path.to_path_buf()),
    }
}
