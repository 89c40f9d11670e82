//! Operations like those of `std::fs`, for paths in which other users may plant links.
//!
//! [`place`] resolves the path and holds its directory open; the last component is then used relative to that directory.
//! Everything that root writes, creates, renames or removes by name uses this module or [`output`]. Clippy rejects the functions
//! of the standard library (`disallowed-methods`), except where no other user can change the path.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use tempfile::TempDir;

use crate::output::{self, Output};
use crate::place::{self, Caller, End, Error, Missing, Owner, Place, new_file, parent};

/// Modes of files and directories that everyone may use, before the umask applies.
const DIRECTORY: Missing = Missing::Make(Mode::from_bits_truncate(0o777));
const FILE: Mode = Mode::from_bits_truncate(0o666);

/// Writes a file atomically: after an error or a crash the path has its old content ([`Output`]).
pub fn write(path: &Path, content: &[u8]) -> Result<(), output::Error> {
    let mut output = Output::create(path)?;
    output.write_all(content).map_err(|error| output::Error { path: path.to_path_buf(), why: error.into() })?;
    output.finish()
}

/// Creates a file that does not exist yet, for writing; [`Caller::owner_in`] determines its owner. It is an error if the name
/// exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    let caller = Caller::of_process();
    let (directory, name) = parent(path, Missing::Refuse)?;
    let owner = caller.owner_in(&fstat(&directory)?);
    let file = new_file(&directory, name, FILE)?;
    owner.map_or(Ok(()), |owner| place::give(&file, owner))?;
    Ok(file)
}

/// Creates a file that only its owner can read, whatever the umask, and its missing parent directories. It is an error if the name
/// exists, or if its directory belongs to another user, who could replace the file, or would own it if root created it.
pub fn create_private(path: &Path) -> io::Result<File> {
    let caller = Caller::of_process();
    let (directory, name) = parent(path, Missing::MakePrivate)?;
    let stat = fstat(&directory)?;
    if !caller.is_own(stat.st_uid) {
        let directory = path.parent().unwrap_or(path).to_path_buf();
        return Err(Error::ForeignDirectory { directory, owner: stat.st_uid }.into());
    }
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = new_file(&directory, name, mode)?;
    caller.owner_in(&stat).map_or(Ok(()), |owner| place::give(&file, owner))?;
    Ok(file)
}

/// Opens a file for reading without following another user's link to it. Pipes and directories are refused.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let place = match Place::find(path, &Caller::of_process(), Missing::Refuse)? {
        End::Place(place) => place,
        End::Descriptor(_) => return File::open(path),
    };
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = openat(&place.directory, place.name.as_os_str(), flags, Mode::empty())?;
    // Opening a pipe would block until a process writes to it.
    match place::kind(&fstat(&found)?) {
        SFlag::S_IFREG | SFlag::S_IFCHR | SFlag::S_IFBLK => Ok(place::reopen(&found, OFlag::O_RDONLY)?),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found a pipe, a socket or a link")),
    }
}

/// Creates a directory and its missing parents; [`Caller::owner_in`] determines the owner of each.
pub fn make_directories(path: &Path) -> Result<(), Error> {
    Place::directory(path, &Caller::of_process(), DIRECTORY).map(drop)
}

/// Creates a directory if it is missing, and returns its path without links. For root, no other user may be able to
/// change that path, so that names in the directory can be used directly.
pub fn sheltered_directory(path: &Path) -> Result<PathBuf, Error> {
    sheltered(path, DIRECTORY)
}

/// Creates a directory for temporary files that only its owner can enter, in an existing directory. It is removed when
/// the value is dropped. For root, no other user may be able to change the parent's path, so that names below it can be
/// used directly.
#[expect(clippy::disallowed_methods, reason = "no other user can change the path of the directory above")]
pub fn temporary_directory(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    let parent = sheltered(parent, Missing::Refuse)?;
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Changes the owner of a directory.
pub fn give_directory(path: &Path, owner: Owner) -> io::Result<()> {
    let (directory, name) = parent(path, Missing::Refuse)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(place::give(openat(&directory, name, flags, Mode::empty())?, owner)?)
}

/// Renames a file or a directory. Links are not followed: a link itself is renamed or replaced.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (old, new) = (parent(from, Missing::Refuse)?, parent(to, Missing::Refuse)?);
    Ok(renameat(&old.0, old.1, &new.0, new.1)?)
}

/// Removes a file or a link, if it exists.
pub fn remove_file(path: &Path) -> io::Result<()> {
    ignore_missing(
        parent(path, Missing::Refuse)
            .and_then(|(directory, name)| Ok(unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir)?)),
    )
}

/// Removes a directory with its content, if it exists. Links in it are removed, not followed.
#[expect(clippy::disallowed_methods, reason = "the directory is held open, and links in it are not followed")]
pub fn remove_tree(path: &Path) -> io::Result<()> {
    ignore_missing(
        parent(path, Missing::Refuse)
            .and_then(|(directory, name)| std::fs::remove_dir_all(place::descriptor_path(&directory).join(name))),
    )
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn sheltered(path: &Path, missing: Missing) -> Result<PathBuf, Error> {
    // The walk starts at the root directory, so that every directory on the way is checked.
    let absolute = std::path::absolute(path).map_err(|source| Error::System { part: path.to_path_buf(), source })?;
    let found = Place::directory(&absolute, &Caller::of_process(), missing)?;
    if found.is_sheltered { Ok(found.path) } else { Err(Error::Unsheltered { directory: path.to_path_buf() }) }
}

#[cfg(test)]
mod tests;
