//! What can go wrong with a store, and what to do about it.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::bound::PATIENCE_S;
use crate::place;

/// An error of the store. Nothing is ever overwritten or moved away to get past one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No place for the default store is known.
    #[error(
        "there is no place for the store: neither XDG_DATA_HOME nor HOME is an absolute path; name a file with --store FILE"
    )]
    NoHome,
    /// The directory of the store could not be made.
    #[error("cannot make the store's directory {path}: {source}; make it, or name another file with --store FILE")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The path leads through a symbolic link of somebody else, or nowhere.
    #[error("the store {path}: {why} (--store FILE)")]
    Place {
        /// The store.
        path: PathBuf,
        /// What is wrong with it.
        why: place::Error,
    },
    /// The file cannot be opened at all.
    #[error("cannot open the store {path}: {reason}; name another file with --store FILE")]
    Unopenable {
        /// The store.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file can be read but not written.
    #[error(
        "cannot write the store {path}: {reason}; give yourself the right to write the file and its directory, or name another file with --store FILE"
    )]
    ReadOnly {
        /// The store.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// The file can be read but not its write-ahead log.
    #[error(
        "the store {path} cannot be read: it has a write-ahead log ({path}-wal), and you can neither read its index ({path}-shm) nor make one; have somebody who can write the directory run `pagelab list comparisons --store {path}`, or copy the store and its log to a directory of yours"
    )]
    UnreadableLog {
        /// The store.
        path: PathBuf,
    },
    /// Somebody wrote the store while it was read without locks.
    #[error("the store {path} was written while it was read, and you cannot lock it (you cannot write it); try again")]
    Changed {
        /// The store.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{path} is not a pagelab store: {found}; it was left as it is: move it aside, or name another file with --store FILE"
    )]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// The file is damaged.
    #[error(
        "the store {path} is damaged: {detail}; it was left as it is: move it aside (`sqlite3 FILE .recover` saves what can be read), or name another file with --store FILE"
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The store has another version.
    #[error(
        "the store {path} has version {found}, and this pagelab reads version {known}; use the pagelab that wrote it, or name another file with --store FILE"
    )]
    OtherVersion {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest version known here.
        known: i64,
    },
    /// The store has other tables than pagelab makes, or what runs when it is read or written.
    #[error(
        "the store {path} is not as pagelab makes it: {found}; it was not read further and is left as it is: remove what does not belong there (`sqlite3 FILE .schema` shows it), or name another file with --store FILE"
    )]
    OtherSchema {
        /// The store.
        path: PathBuf,
        /// What it has or lacks.
        found: String,
    },
    /// The file is not at its path any more.
    #[error(
        "the store {path} was {what} while it was open; what was stored in it before is gone with it, and what is at that path is left as it is"
    )]
    Gone {
        /// The store.
        path: PathBuf,
        /// What became of it.
        what: &'static str,
    },
    /// SQLite worked for too long.
    #[error(
        "the store {path}: SQLite was stopped after {worked_s:.0} s of work on one transaction; what was stored before is as it was: see with `sqlite3 FILE` what it holds, or name another file with --store FILE"
    )]
    TooLong {
        /// The store.
        path: PathBuf,
        /// How long it had worked.
        worked_s: f64,
    },
    /// The file system is full.
    #[error(
        "no space left for the store {path}; what was stored before is safe: free some space, or name a file elsewhere with --store FILE"
    )]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// Another process holds the store for too long.
    #[error("another process has held the store {path} for {waited_s:.0} s; see who it is with `fuser {path}`")]
    Busy {
        /// The store.
        path: PathBuf,
        /// How long it was waited for, s.
        waited_s: f64,
    },
    /// There is no such comparison.
    #[error("the store {path} has no comparison {id}")]
    NoSuchComparison {
        /// The store.
        path: PathBuf,
        /// The number that was asked for.
        id: i64,
    },
    /// Somebody runs the study already.
    #[error(
        "the study {study} is being run already, by {by}: two runs would measure each other; wait for it, or end it and start again: what it has finished is not repeated"
    )]
    Held {
        /// The study.
        study: String,
        /// Who.
        by: String,
    },
    /// The trial is there already.
    #[error("the store {path} already has attempt {attempt} of arm {arm} in block {block} of comparison {comparison}")]
    Duplicate {
        /// The store.
        path: PathBuf,
        /// The comparison.
        comparison: i64,
        /// The arm's index.
        arm: usize,
        /// The block.
        block: u32,
        /// The attempt.
        attempt: u32,
    },
    /// A figure that cannot be stored.
    #[error("cannot store {what}: {value} is not a number that the store can hold; nothing of this trial was stored")]
    Unstorable {
        /// Which figure.
        what: String,
        /// Its value.
        value: String,
    },
    /// SQLite says something else.
    #[error("the store {path}: {source}")]
    Sqlite {
        /// The store.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

impl Error {
    /// The error for what SQLite reports of the file at `path`.
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

    /// Columns that hold something else than this program writes are damage.
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
