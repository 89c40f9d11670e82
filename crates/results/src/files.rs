//! What `std::fs` does to a path, where other users may plant links.
//!
//! [`place`] follows the path, and the last name is used in the directory that is then held open. Whatever root writes, makes,
//! renames or removes by name uses this module or [`output`]; clippy refuses the functions of the standard library
//! (`disallowed-methods`), except where no other user can change the path.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use tempfile::TempDir;

use crate::output::{self, Output};
use crate::place::{self, Caller, End, Error, Missing, Owner, Place, inside, new_file, parent};

/// Modes of what everybody may use, less what the umask takes.
const DIRECTORY: Missing = Missing::Make(Mode::from_bits_truncate(0o777));
const FILE: Mode = Mode::from_bits_truncate(0o666);

/// Writes a file, which is there wholly or not at all ([`Output`]).
///
/// # Errors
/// As [`Output::create`] and [`Output::finish`].
pub fn write(path: &Path, content: &[u8]) -> Result<(), output::Error> {
    let mut output = Output::create(path)?;
    output.write_all(content).map_err(|error| output::Error { path: path.to_path_buf(), why: error.into() })?;
    output.finish()
}

/// Makes a file that is not there yet, to write it; it belongs to whom [`Caller::owner_in`] says.
///
/// # Errors
/// There is something of that name; those of [`Place::find`] and of the system.
pub fn create_new(path: &Path) -> io::Result<File> {
    let caller = Caller::of_process();
    let (directory, name) = parent(path, Missing::Refuse)?;
    let owner = caller.owner_in(&fstat(&directory)?);
    let file = new_file(&directory, name, FILE)?;
    owner.map_or(Ok(()), |owner| place::give(&file, owner))?;
    Ok(file)
}

/// Makes a file that only its owner can read, and the missing directories above it, whatever the umask.
///
/// # Errors
/// There is something of that name; its directory belongs to another user, who could read the file; those of [`Place::find`]
/// and of the system.
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

/// Opens a file to read it, and follows no link of another user to it.
///
/// # Errors
/// It is a pipe or a directory; those of [`Place::find`] and of the system.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let place = match Place::find(path, &Caller::of_process(), Missing::Refuse)? {
        End::Place(place) => place,
        End::Descriptor(_) => return File::open(path),
    };
    let looked = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let there = openat(&place.directory, place.name.as_os_str(), looked, Mode::empty())?;
    // To open a pipe would be to wait for somebody who writes to it.
    match place::kind(&fstat(&there)?) {
        SFlag::S_IFREG | SFlag::S_IFCHR | SFlag::S_IFBLK => Ok(place::reopen(&there, OFlag::O_RDONLY)?),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file, found a pipe, a socket or a link")),
    }
}

/// Makes a directory and those above it, where they are missing; each belongs to whom [`Caller::owner_in`] says.
///
/// # Errors
/// As [`Place::find`]; a part of the path is no directory.
pub fn make_directories(path: &Path) -> Result<(), Error> {
    inside(path, DIRECTORY).map(drop)
}

/// The path without links of a directory that is made where it is missing. As root: one whose path no other user can change,
/// so that the names in it can be used as they are.
///
/// # Errors
/// As [`make_directories`]; [`Error::Unsheltered`].
pub fn sheltered_directory(path: &Path) -> Result<PathBuf, Error> {
    sheltered(path, DIRECTORY)
}

/// Makes a directory for temporary files that only its owner can enter, in a directory that is there; it is removed with the
/// value. As root: in one whose path no other user can change, so that the names below it can be used as they are.
///
/// # Errors
/// As [`Place::find`]; [`Error::Unsheltered`]; those of mkdir(2).
#[expect(clippy::disallowed_methods, reason = "no other user can change the path of the directory above")]
pub fn temporary_directory(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    let parent = sheltered(parent, Missing::Refuse)?;
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Gives a directory to a user.
///
/// # Errors
/// It is no directory; those of [`Place::find`] and of the system.
pub fn give_directory(path: &Path, owner: Owner) -> io::Result<()> {
    let (directory, name) = parent(path, Missing::Refuse)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(place::give(openat(&directory, name, flags, Mode::empty())?, owner)?)
}

/// Renames a file or a directory. A link is renamed itself, or replaced.
///
/// # Errors
/// Those of [`Place::find`] and of renameat(2).
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (old, new) = (parent(from, Missing::Refuse)?, parent(to, Missing::Refuse)?);
    Ok(renameat(&old.0, old.1, &new.0, new.1)?)
}

/// Removes a file or a link, where it is there.
///
/// # Errors
/// Those of [`Place::find`] and of unlinkat(2).
pub fn remove_file(path: &Path) -> io::Result<()> {
    or_absent(
        parent(path, Missing::Refuse)
            .and_then(|(directory, name)| Ok(unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir)?)),
    )
}

/// Removes a directory with all that is in it, where it is there. Links in it are removed themselves.
///
/// # Errors
/// Those of [`Place::find`] and of the system.
#[expect(clippy::disallowed_methods, reason = "the directory is held open, and links in it are not followed")]
pub fn remove_tree(path: &Path) -> io::Result<()> {
    or_absent(
        parent(path, Missing::Refuse)
            .and_then(|(directory, name)| std::fs::remove_dir_all(place::descriptor_path(&directory).join(name))),
    )
}

fn or_absent(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn sheltered(path: &Path, missing: Missing) -> Result<PathBuf, Error> {
    // From the root on, so that every directory on the way is seen.
    let whole = std::path::absolute(path).map_err(|source| Error::System { part: path.to_path_buf(), source })?;
    let found = inside(&whole, missing)?;
    if found.is_sheltered {
        Ok(found.directory_path().to_path_buf())
    } else {
        Err(Error::Unsheltered { directory: path.to_path_buf() })
    }
}

#[cfg(test)]
mod tests;
