//! Where the store is, and how its file is created.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::error::Error;
use crate::place::{self, Caller, End, Missing, Place};

/// `$XDG_DATA_HOME/pagelab/results.sqlite`, or below `~/.local/share` if that variable is not an absolute path (XDG Base Directory
/// Specification). Fails with [`Error::NoHome`] if neither that variable nor `HOME` is an absolute path.
pub fn default_path() -> Result<PathBuf, Error> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("pagelab/results.sqlite")).ok_or(Error::NoHome)
}

/// The opened file of a store.
#[derive(Debug)]
pub(super) struct StoreFile {
    /// Its path, without links.
    pub(super) path: PathBuf,
    /// The file opened with O_PATH, so that closing it does not release SQLite's locks.
    pub(super) file: OwnedFd,
}

/// Opens the file of a store, if it exists.
pub(super) fn find(path: &Path) -> Result<Option<StoreFile>, Error> {
    let place = match Place::find(path, &Caller::of_process(), Missing::Refuse) {
        Ok(End::Place(place)) => place,
        Ok(End::Descriptor(_)) => return Err(unopenable(path, DESCRIPTOR)),
        Err(place::Error::NoDirectory { .. }) => return Ok(None),
        Err(why) => return Err(misplaced(path, why)),
    };
    if place.there.is_none() {
        return Ok(None);
    }
    regular(path, &place).map(Some)
}

/// Opens the file of a store, and returns its path without links. Creates the file and its directories if they are
/// missing.
///
/// What root creates belongs to the owner of the directory in which it is created, so that a store in a user's home
/// stays that user's. Root follows no symbolic link of another user.
pub(super) fn prepare(path: &Path) -> Result<StoreFile, Error> {
    let caller = Caller::of_process();
    let found = Place::find(path, &caller, Missing::Make(Mode::S_IRWXU)).map_err(|why| misplaced(path, why))?;
    let End::Place(place) = found else { return Err(unopenable(path, DESCRIPTOR)) };
    if place.there.is_none() {
        let path = place.path();
        match open(&place, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL).map(File::from) {
            // SQLite gives the files that it creates next to the store to the store's owner (findCreateFileMode in
            // os_unix.c).
            Ok(file) => {
                let given = caller.owner_in(&place.directory_stat).map_or(Ok(()), |owner| place::give(&file, owner));
                given.map_err(|errno| refused(&path, errno.into()))?;
            }
            // Another process has created the file meanwhile.
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(refused(&path, errno.into())),
        }
    }
    regular(path, &place)
}

/// Opens the regular file at a place. `named` is its path in error messages.
fn regular(named: &Path, place: &Place) -> Result<StoreFile, Error> {
    let path = place.path();
    let file = open(place, OFlag::O_PATH).map_err(|errno| refused(&path, errno.into()))?;
    let stat = fstat(&file).map_err(|errno| refused(&path, errno.into()))?;
    match place::kind(&stat) {
        SFlag::S_IFREG => Ok(StoreFile { path, file }),
        SFlag::S_IFDIR => Err(unopenable(named, "it is a directory")),
        _ => Err(unopenable(named, "it is not a regular file")),
    }
}

fn open(place: &Place, flags: OFlag) -> nix::Result<OwnedFd> {
    openat(&place.directory, place.name.as_os_str(), flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, MODE)
}

fn unopenable(path: &Path, reason: &str) -> Error {
    Error::Unopenable { path: path.to_path_buf(), reason: reason.to_owned() }
}

const DESCRIPTOR: &str = "it is a descriptor of this process";

const MODE: Mode = Mode::from_bits_truncate(0o644);

fn misplaced(path: &Path, why: place::Error) -> Error {
    let path = path.to_path_buf();
    match why {
        place::Error::Directory => unopenable(&path, "it is a directory"),
        place::Error::System { part, source } => Error::Directory { path: part, source },
        why => Error::Place { path, why },
    }
}

fn refused(path: &Path, error: io::Error) -> Error {
    let (path, reason) = (path.to_path_buf(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { path },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { path, reason },
        _ => Error::Unopenable { path, reason },
    }
}

/// Device and inode of the file at a path; `None` if there is none.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    let there = std::fs::symlink_metadata(path).ok()?;
    Some((std::os::unix::fs::MetadataExt::dev(&there), std::os::unix::fs::MetadataExt::ino(&there)))
}
