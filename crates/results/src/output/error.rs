//! Why a file cannot be written.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::place;

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {why}", path.display())]
pub struct Error {
    /// The file, as given by the user.
    pub path: PathBuf,
    pub why: Why,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// The path cannot be resolved.
    #[error(transparent)]
    Place(#[from] place::Error),
    /// The path is a pipe of another user.
    #[error(
        "it is a pipe of user {owner}, who could read the output, or block pagelab by not reading it; name another file, or a pipe of your own"
    )]
    ForeignPipe {
        /// User id of the owner.
        owner: u32,
    },
    /// The path is a file of another user, in a directory in which others may create files.
    #[error(
        "it is a file of user {owner}, in a directory in which other users may put files; name another file, or have its owner or root remove this one"
    )]
    ForeignFile {
        /// User id of the owner.
        owner: u32,
    },
    /// The file would be written in place, and has other hard links.
    #[error("it has other hard links, and writing would change the file under those names too; name another file")]
    HardLinks,
    #[error("it is {kind}; name a regular file")]
    NotRegular {
        /// The type of the file that was found.
        kind: &'static str,
    },
    #[error("{0}; free some space, or name a file on another file system")]
    Full(#[source] io::Error),
    /// The temporary file cannot be created in the directory.
    #[error(
        "a file cannot be created in {}: {error}; name a file in a directory that you can write to", directory.display()
    )]
    TemporaryFile {
        directory: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{0}; name another file")]
    System(#[source] io::Error),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Why {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Why::Full(error),
            io::ErrorKind::IsADirectory => Why::Place(place::Error::Directory),
            _ => Why::System(error),
        }
    }
}

impl From<Errno> for Why {
    fn from(errno: Errno) -> Why {
        Why::from(io::Error::from(errno))
    }
}
