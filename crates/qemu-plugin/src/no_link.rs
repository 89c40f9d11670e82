// SPDX-License-Identifier: GPL-2.0-or-later
//! Opens files by paths on which no component is a symbolic link.
//!
//! pagelab passes paths without links. If a component is a link when the file is opened, another user who owns a directory on the
//! path has planted it, and a recorder running as root must not follow it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Opens a file. A file that is created (O_CREAT) has mode 0666 less the umask. Refuses a path with a symbolic link.
pub fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    let (directory, name) = parent(path)?;
    open_in(Some(&directory), &name, flags).map(File::from)
}

/// Removes a file. Refuses a path with a symbolic link.
pub fn remove(path: &Path) -> io::Result<()> {
    let (directory, name) = parent(path)?;
    // SAFETY: the descriptor is open, and the name ends with a zero.
    match unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The open directory of a file, and the file's name in it.
fn parent(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?;
    let directory = libc::O_PATH | libc::O_DIRECTORY;
    let begin = if path.is_absolute() { c"/" } else { c"." };
    let mut opened = open_in(None, begin, directory)?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        if !matches!(part, Component::RootDir | Component::CurDir) {
            opened = open_in(Some(&opened), &CString::new(part.as_os_str().as_bytes())?, directory)?;
        }
    }
    Ok((opened, CString::new(name.as_bytes())?))
}

fn open_in(directory: Option<&OwnedFd>, name: &std::ffi::CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let at = directory.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    // SAFETY: the descriptor is open, and the name ends with a zero.
    match unsafe { libc::openat(at, name.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0o666) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and this is its only owner.
        opened => Ok(unsafe { OwnedFd::from_raw_fd(opened) }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_part_of_a_path_may_be_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        symlink("file", at("real/link")).unwrap();
        let new = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        open(&at("real/file"), new).unwrap();
        assert_eq!(open(&at("real/file"), new).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for path in ["link/file", "link/new", "real/link"] {
            assert!(open(&at(path), libc::O_WRONLY).is_err() && open(&at(path), new).is_err(), "{path}");
        }
        assert!(remove(&at("link/file")).is_err());
        remove(&at("real/file")).unwrap();
        assert_eq!(std::fs::read_dir(at("real")).unwrap().count(), 1);
    }
}
