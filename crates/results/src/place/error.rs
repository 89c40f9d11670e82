//! Errors of resolving a path.

use std::io;
use std::path::PathBuf;

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A symbolic link of another user is on the way.
    #[error(
        "the symbolic link {link} belongs to user {owner}, and links of other users are not followed; name the file that it leads to"
    )]
    ForeignLink {
        link: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// As root: a symbolic link that another user could have put there is on the way.
    #[error(
        "another user may have put the symbolic link {link} there (its directory or one above is theirs, or it has a second name), and root does not follow it; name the file that it leads to"
    )]
    MovableLink { link: PathBuf },
    #[error("{link} leads through more than 40 symbolic links")]
    Loop {
        /// The last link that was followed.
        link: PathBuf,
    },
    /// A directory is missing.
    #[error(
        "there is no directory {directory} (No such file or directory); create it with mkdir -p, or name another one"
    )]
    NoDirectory { directory: PathBuf },
    #[error("it is a directory; name a file in it")]
    Directory,
    /// A directory for private files belongs to another user.
    #[error("{directory} belongs to user {owner}; name a directory of your own, or one that does not exist yet")]
    ForeignDirectory {
        directory: PathBuf,
        /// User id of the owner.
        owner: u32,
    },
    /// As root: a directory that another user can write, rename or replace is on the way.
    #[error(
        "another user can change what is at {directory}; as root, name a directory that only root can change, by the option or the variable (TMPDIR, XDG_CACHE_HOME) that names this one"
    )]
    Unsheltered { directory: PathBuf },
    #[error("{part}: {source}")]
    System {
        /// The component of the path that failed.
        part: PathBuf,
        source: io::Error,
    },
}

impl From<Error> for io::Error {
    /// The kind of the `io::Error` is that of the system call that would have failed.
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::System { source, .. } => source.kind(),
            Error::NoDirectory { .. } => io::ErrorKind::NotFound,
            Error::Directory => io::ErrorKind::IsADirectory,
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, error)
    }
}
