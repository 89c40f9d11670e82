//! Reads a store that the caller cannot write, without creating or changing anything.
//!
//! SQLite reads a store in WAL mode through its log and the log's index, and creates these if they do not exist. If it
//! cannot create them, there are two cases (<https://sqlite.org/wal.html#read_only_databases>):
//!
//! * The log and the journal are empty. Then the file is the complete store, and SQLite reads it as it is
//!   (`immutable`). SQLite takes no lock in this mode, and another process may write the file meanwhile. So the file's
//!   times and size are compared after every transaction.
//! * They are not empty. Then SQLite reads the log through an existing index; without an index it cannot, and the error
//!   says what to do.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::unistd::{AccessFlags, eaccess};

use super::bound::Bound;
use super::connection::{Access, connect};
use super::place::{self, StoreFile};
use super::{Error, Store, VERSION};

/// A file that was not changed for this long gets different times at its next change: FAT, the coarsest file system,
/// has a resolution of two seconds.
const SETTLED: Duration = Duration::from_secs(2);
/// Delay before a file is checked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

impl Store {
    /// Opens the store at `path` for reading; `None` if it does not exist, or if nothing was stored in it yet. If the caller cannot
    /// write the file or its directory, nothing is created or changed there. Reading fails with [`Error::Changed`] if another
    /// process writes the store meanwhile and SQLite's locks cannot be taken.
    pub fn find(path: &Path, must_stop: fn() -> bool) -> Result<Option<Store>, Error> {
        let Some(StoreFile { path: real, file }) = place::find(path)? else { return Ok(None) };
        if is_writable(&real) {
            return Store::open_until(path, must_stop).map(Some);
        }
        let bound = Arc::new(Bound::new(must_stop));
        bound.begin();
        let (access, unlocked_state) = loop {
            let state = FileState::of(&real)?;
            match is_complete_without_log(&real)? {
                false => break (Access::Read, None),
                true if state.bytes == 0 => return Ok(None),
                true if state.is_settled() => break (Access::Immutable, Some(state)),
                true if bound.is_out_of_patience() => {
                    return Err(Error::Busy { path: real, waited_s: bound.elapsed_s() });
                }
                true => std::thread::sleep(RETRY_INTERVAL),
            }
        };
        let connection = connect(&real, access, bound.clone()).map_err(|error| Error::from_sqlite(&real, error));
        let (log, checked_schema) = (Cell::new(None), Cell::new(None));
        let opened = connection.and_then(|connection| {
            Store { connection, path: real, file, log, must_stop, bound, checked_schema, unlocked_state }
                .check_for_reading()
        });
        match opened {
            Err(Error::Unopenable { path, .. } | Error::ReadOnly { path, .. }) if access == Access::Read => {
                Err(Error::UnreadableLog { path })
            }
            opened => opened.map(Some),
        }
    }

    fn check_for_reading(self) -> Result<Store, Error> {
        match self.pragma("user_version")? {
            0 | VERSION => self.check_application()?,
            found => return Err(Error::OtherVersion { path: self.path.clone(), found, known: VERSION }),
        }
        self.read(|_| Ok(()))?;
        self.refuse_gone().map(|()| self)
    }
}

/// Whether the caller can write a file, and create others next to it.
fn is_writable(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(Path::new("/"));
    [path, directory].iter().all(|path| eaccess(*path, AccessFlags::W_OK).is_ok())
}

/// Whether the file alone is the complete store: the log is empty, and so is the journal of an unfinished transaction.
fn is_complete_without_log(path: &Path) -> Result<bool, Error> {
    let is_empty = |ending: &str| {
        let neighbour = with_ending(path, ending);
        match fs::symlink_metadata(&neighbour) {
            Ok(found) => Ok(found.len() == 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(Error::Unopenable { path: neighbour, reason: error.to_string() }),
        }
    };
    Ok(is_empty("-wal")? && is_empty("-journal")?)
}

fn with_ending(path: &Path, ending: impl AsRef<OsStr>) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The state of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    file: (u64, u64),
    bytes: u64,
    /// Seconds and nanoseconds of the last changes of content (mtime) and of attributes (ctime).
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(path: &Path) -> Result<FileState, Error> {
        let found = fs::symlink_metadata(path);
        let found = found.map_err(|error| Error::Unopenable { path: path.to_path_buf(), reason: error.to_string() })?;
        Ok(FileState::from(&found))
    }

    /// Whether any later change gives the file a different time.
    fn is_settled(&self) -> bool {
        let changed_s = u64::try_from(self.changed.0.max(self.modified.0)).unwrap_or(0);
        let next = SystemTime::UNIX_EPOCH + Duration::from_secs(changed_s + 1) + SETTLED;
        // If the time is in the future, a change before that time gives a different time.
        SystemTime::now() >= next || SystemTime::now() < SystemTime::UNIX_EPOCH + Duration::from_secs(changed_s)
    }

    /// Fails if the file has changed since this state was taken.
    pub(super) fn check(&self, path: &Path) -> Result<(), Error> {
        if FileState::of(path)? == *self { Ok(()) } else { Err(Error::Changed { path: path.to_path_buf() }) }
    }
}

impl From<&Metadata> for FileState {
    fn from(found: &Metadata) -> FileState {
        FileState {
            file: (found.dev(), found.ino()),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
