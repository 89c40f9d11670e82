//! Errors of a store ([`Error`]), whose messages name the remedy.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::bound::PATIENCE_S;
use crate::place;

/// An error of the store. pagelab never handles an error by overwriting or moving a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No default path for the store is known.
    #[error(
        "there is no place for the store: neither XDG_DATA_HOME nor HOME is an absolute path; name a file with --store FILE"
    )]
    NoHome,
    /// The directory of the store could not be created.
    #[error("cannot create the store's directory {path}: {source}; create it, or name another file with --store FILE")]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The path leads through a symbolic link of another user, or to nothing.
    #[error("the store {path}: {why} (--store FILE)")]
    Place {
        /// Path of the store.
        path: PathBuf,
        /// The error of the path.
        why: place::Error,
    },
    #[error("cannot open the store {path}: {reason}; name another file with --store FILE")]
    Unopenable {
        /// Path of the store.
        path: PathBuf,
        reason: String,
    },
    /// The file can be read but not written.
    #[error(
        "cannot write the store {path}: {reason}; give yourself the right to write the file and its directory, or name another file with --store FILE"
    )]
    ReadOnly {
        /// Path of the store.
        path: PathBuf,
        /// The error of SQLite.
        reason: String,
    },
    /// The file can be read but not its write-ahead log.
    #[error(
        "the store {path} cannot be read: it has a write-ahead log ({path}-wal), and you can neither read its index ({path}-shm) nor create one; ask a user who can write the directory to run `pagelab list comparisons --store {path}`, or copy the store and its log to a directory of yours"
    )]
    UnreadableLog {
        /// Path of the store.
        path: PathBuf,
    },
    /// The store was written while it was read without locks.
    #[error("the store {path} was written while it was read, and you cannot lock it (you cannot write it); try again")]
    Changed {
        /// Path of the store.
        path: PathBuf,
    },
    /// The file is not a store.
    #[error(
        "{path} is not a pagelab store: {found}; it was left as it is: move it aside, or name another file with --store FILE"
    )]
    NotAStore {
        /// Path of the file.
        path: PathBuf,
        /// What the file is.
        found: String,
    },
    /// The file is damaged.
    #[error(
        "the store {path} is damaged: {detail}; it was left as it is: move it aside (`sqlite3 FILE .recover` saves what can be read), or name another file with --store FILE"
    )]
    Damaged {
        /// Path of the store.
        path: PathBuf,
        /// The damage.
        detail: String,
    },
    /// The store has a different schema version.
    #[error(
        "the store {path} has version {found}, and this pagelab reads version {known}; use the pagelab that wrote it, or name another file with --store FILE"
    )]
    OtherVersion {
        /// Path of the store.
        path: PathBuf,
        /// The schema version of the store.
        found: i64,
        /// The latest version known here.
        known: i64,
    },
    /// The schema differs from the one that pagelab creates: other tables, or triggers or views that run on access.
    #[error(
        "the store {path} is not as pagelab makes it: {found}; it was not read further and is left as it is: remove what does not belong there (`sqlite3 FILE .schema` shows it), or name another file with --store FILE"
    )]
    OtherSchema {
        /// Path of the store.
        path: PathBuf,
        /// What differs.
        found: String,
    },
    /// The file at the path is no longer the file that was opened.
    #[error(
        "the store {path} was {what} while it was open; what was stored in it before is gone with it, and what is at that path is left as it is"
    )]
    Gone {
        /// Path of the store.
        path: PathBuf,
        /// What happened to the file.
        what: &'static str,
    },
    /// SQLite exceeded its time limit for one transaction.
    #[error(
        "the store {path}: SQLite was stopped after {worked_s:.0} s of work on one transaction; what was stored before is unchanged: inspect it with `sqlite3 {path}`, or name another file with --store FILE"
    )]
    TooLong {
        /// Path of the store.
        path: PathBuf,
        /// Seconds that it worked.
        worked_s: f64,
    },
    /// The file system is full.
    #[error(
        "no space left for the store {path}; what was stored before is safe: free some space, or name a file elsewhere with --store FILE"
    )]
    Full {
        /// Path of the store.
        path: PathBuf,
    },
    /// Another process locked the store for too long.
    #[error("another process has held the store {path} for {waited_s:.0} s; `fuser {path}` shows which one")]
    Busy {
        /// Path of the store.
        path: PathBuf,
        /// Seconds waited.
        waited_s: f64,
    },
    #[error("the store {path} has no comparison {id}")]
    NoSuchComparison {
        /// Path of the store.
        path: PathBuf,
        /// The requested id.
        id: i64,
    },
    /// Another process is already running the study.
    #[error(
        "the study {study} is already running ({by}): two runs would disturb each other; wait for it, or end it and start again: what it has finished is not repeated"
    )]
    StudyLock {
        /// Name of the study.
        study: String,
        /// The process that runs it.
        by: String,
    },
    #[error("the store {path} already has attempt {attempt} of arm {arm} in block {block} of comparison {comparison}")]
    Duplicate {
        /// Path of the store.
        path: PathBuf,
        /// Id of the comparison.
        comparison: i64,
        /// Index of the arm.
        arm: usize,
        block: u32,
        attempt: u32,
    },
    #[error("cannot store {what}: {value} is not a number that the store can hold; nothing of this trial was stored")]
    Unstorable {
        /// Name of the figure.
        what: String,
        value: String,
    },
    #[error("the store {path}: {source}")]
    Sqlite {
        /// Path of the store.
        path: PathBuf,
        source: rusqlite::Error,
    },
}

impl Error {
    /// Converts an error that SQLite reports for the file at `path`.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Error {
        let path = path.to_path_buf();
        let reason = source.to_string();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => {
                Error::NotAStore { path, found: "it is not a SQLite database".to_string() }
            }
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, detail: reason },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly { path, reason },
            Some(ErrorCode::DiskFull) => Error::Full { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::Busy { path, waited_s: PATIENCE_S as f64 }
            }
            Some(ErrorCode::OperationInterrupted) => Error::TooLong { path, worked_s: 0.0 },
            Some(ErrorCode::CannotOpen) => Error::Unopenable { path, reason },
            _ => Error::from_content(path, source),
        }
    }

    /// A column value that pagelab never writes means that the store is damaged.
    fn from_content(path: PathBuf, source: rusqlite::Error) -> Error {
        match source {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::QueryReturnedNoRows => Error::Damaged { path, detail: source.to_string() },
            source => Error::Sqlite { path, source },
        }
    }
}
