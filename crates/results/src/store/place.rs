//! Where the store is, and how its file comes into being.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use super::Error;

/// `$XDG_DATA_HOME/pagelab/results.sqlite`, or below `~/.local/share` where that variable is not an
/// absolute path (XDG Base Directory Specification).
///
/// # Errors
/// [`Error::NoHome`] when neither that variable nor `HOME` is an absolute path.
pub fn default_path() -> Result<PathBuf, Error> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("pagelab/results.sqlite")).ok_or(Error::NoHome)
}

/// Makes the file and its directories where they are missing, and says where the file really is.
///
/// As root, what is made belongs to the owner of the directory in which it is made, so that a store in
/// somebody else's home stays theirs; and a symbolic link that root did not make is not followed.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, Error> {
    let unopenable = |error: io::Error| Error::Unopenable { path: path.to_path_buf(), reason: error.to_string() };
    let path = std::path::absolute(path).map_err(unopenable)?;
    if is_root() {
        refuse_foreign_links(&path)?;
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    make_directories(parent).map_err(|source| Error::Directory { path: parent.to_path_buf(), source })?;
    match OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path) {
        Ok(_) => inherit_owner(&path).map_err(unopenable)?,
        // What is wrong with it is for SQLite to say, if anything is.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(&path, error)),
    }
    if path.is_dir() {
        return Err(Error::Unopenable { path, reason: "it is a directory".to_string() });
    }
    path.canonicalize().map_err(unopenable)
}

fn refused(path: &Path, error: io::Error) -> Error {
    let (path, reason) = (path.to_path_buf(), error.to_string());
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { path },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { path, reason },
        _ => Error::Unopenable { path, reason },
    }
}

fn refuse_foreign_links(path: &Path) -> Result<(), Error> {
    for part in path.ancestors() {
        if let Ok(metadata) = part.symlink_metadata()
            && metadata.is_symlink()
            && metadata.uid() != 0
        {
            return Err(Error::ForeignLink { path: path.into(), link: part.into(), owner: metadata.uid() });
        }
    }
    Ok(())
}

fn make_directories(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => inherit_owner(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// SQLite gives its own files beside the store the store's owner (findCreateFileMode in os_unix.c).
fn inherit_owner(path: &Path) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let directory = fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
    lchown(path, Some(directory.uid()), Some(directory.gid()))
}

/// Whether this process runs as root: `/proc/self` belongs to its effective user (proc(5)).
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
