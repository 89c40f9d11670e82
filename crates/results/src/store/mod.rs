//! The store: every comparison, raw, in one SQLite file that several processes write at once.
//!
//! A trial is one transaction, so a killed run loses at most the trial in flight. The journal is a
//! write-ahead log: readers do not wait for writers, and writers wait for each other for half a minute.
//! It is synced with every trial, so a power cut takes no more than a kill. A file system without shared
//! memory between processes (NFS) is no place for it, as SQLite itself says (<https://sqlite.org/wal.html>).
//!
//! `FORMATS.md` describes the tables for those who read them with other tools.

mod error;
mod place;
mod read;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use study::comparison::{Comparison, Ended};
use study::stats::{self, Analysis};
use study::trial::TrialRecord;

pub use error::Error;
pub use place::default_path;

use error::PATIENCE_S;

/// The latest version of the schema; the file's `user_version`.
const VERSION: i64 = 4;
/// The file's `application_id`: `pglb` in ASCII.
const APPLICATION: i64 = 0x7067_6c62;
const SCHEMA: &str = include_str!("schema.sql");

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// A comparison in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its number in the store.
    pub id: i64,
    /// Seconds since 1970 at its start.
    pub started_unix_s: i64,
    /// The measured command and its arguments.
    pub command: Vec<String>,
    /// The labels of its arms.
    pub arms: Vec<String>,
    /// Trials of policies that it has so far, rejected and discarded ones included.
    pub trials: u64,
    /// Why it ended.
    pub ended: Ended,
}

impl Store {
    /// Opens the store at `path`, and makes it where there is none.
    ///
    /// # Errors
    /// Whatever [`Error`] names. A file that is not a store, is damaged, or comes from a later pagelab is
    /// left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        let path = place::prepare(path.as_ref())?;
        let result = connect(&path).map_err(|error| Error::from_sqlite(&path, error))?;
        let store = Store { connection: result, path };
        store.check_or_create()?;
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a comparison that begins, with the trials that it has already, and returns its number.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::ReadOnly`], [`Error::Busy`] and what else SQLite reports; nothing of the
    /// comparison is stored then.
    pub fn begin(&self, comparison: &Comparison) -> Result<i64, Error> {
        self.write(|transaction| {
            upgrade(transaction)?;
            let id = write::comparison(transaction, comparison)?;
            comparison.trials.iter().try_for_each(|record| write::trial(transaction, id, record))?;
            Ok(id)
        })
    }

    /// Adds a trial to a comparison, whole or not at all. When this returns, the trial is on the disk.
    ///
    /// # Errors
    /// As [`Store::begin`]; [`Error::NoSuchComparison`], [`Error::Duplicate`] and [`Error::Unstorable`].
    pub fn append(&self, id: i64, record: &TrialRecord) -> Result<(), Error> {
        self.write(|transaction| write::trial(transaction, id, record))
    }

    /// Stores what follows from the trials, and why the comparison ended. It can be called again.
    ///
    /// # Errors
    /// As [`Store::begin`]; [`Error::NoSuchComparison`].
    pub fn finish(&self, id: i64, analysis: Option<&Analysis>, ended: &Ended) -> Result<(), Error> {
        self.write(|transaction| write::end(transaction, id, analysis, ended))
    }

    /// The comparison of that number, as far as it has been stored. One that has not ended, because it
    /// runs or was killed, comes with what follows from its trials so far.
    ///
    /// # Errors
    /// [`Error::NoSuchComparison`]; [`Error::Damaged`] for content that no pagelab wrote.
    pub fn load(&self, id: i64) -> Result<Comparison, Error> {
        self.read(|transaction| read::comparison(transaction, id))?
            .map(analysed)
            .ok_or_else(|| Error::NoSuchComparison { path: self.path.clone(), id })
    }

    /// Every comparison, the oldest first.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub fn list(&self) -> Result<Vec<Summary>, Error> {
        self.read(read::summaries)
    }

    /// The comparison that was begun last; `None` in an empty store.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub fn latest(&self) -> Result<Option<Comparison>, Error> {
        self.read(|transaction| {
            let id: Option<i64> = transaction.query_row("SELECT max(id) FROM comparisons", [], |row| row.get(0))?;
            id.map_or(Ok(None), |id| read::comparison(transaction, id))
        })
        .map(|comparison| comparison.map(analysed))
    }

    fn check_or_create(&self) -> Result<(), Error> {
        match self.pragma("user_version")? {
            0 => self.create()?,
            1..=VERSION => self.check_application()?,
            found => return Err(Error::Newer { path: self.path.clone(), found, known: VERSION }),
        }
        self.use_write_ahead_log()
    }

    fn create(&self) -> Result<(), Error> {
        self.write(|transaction| {
            let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            if pragma("user_version")? != 0 {
                return Ok(()); // Another process was faster.
            }
            let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables > 0 || pragma("application_id")? != 0 {
                return Err(write::Failure::Foreign);
            }
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            Ok(())
        })
    }

    fn check_application(&self) -> Result<(), Error> {
        if self.pragma("application_id")? == APPLICATION {
            return Ok(());
        }
        Err(self.failed(write::Failure::Foreign))
    }

    /// SQLite does not wait for the lock that this change takes, so it is asked for again; once made, the
    /// change lasts. Where the file system cannot have the log, the older journal serves, which is as safe.
    fn use_write_ahead_log(&self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let mode = self.connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
            match mode.map_err(|error| Error::from_sqlite(&self.path, error)) {
                Err(Error::Busy { .. }) if begun.elapsed().as_secs() < PATIENCE_S => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => return result,
            }
        }
    }

    fn pragma(&self, name: &str) -> Result<i64, Error> {
        let value = self.connection.pragma_query_value(None, name, |row| row.get(0));
        value.map_err(|error| Error::from_sqlite(&self.path, error))
    }

    fn write<T>(&self, body: impl FnOnce(&Transaction<'_>) -> Result<T, write::Failure>) -> Result<T, Error> {
        let begin = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let result = begin.map_err(write::Failure::from).and_then(|transaction| {
            let value = body(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        result.map_err(|failure| self.failed(failure))
    }

    fn read<T>(&self, body: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, Error> {
        let begin = Transaction::new_unchecked(&self.connection, TransactionBehavior::Deferred);
        begin.and_then(|transaction| body(&transaction)).map_err(|error| Error::from_sqlite(&self.path, error))
    }

    fn failed(&self, failure: write::Failure) -> Error {
        let path = self.path.clone();
        match failure {
            write::Failure::Sqlite(source) => Error::from_sqlite(&path, source),
            write::Failure::NoSuchComparison(id) => Error::NoSuchComparison { path, id },
            write::Failure::Unstorable { what, value } => Error::Unstorable { what, value },
            write::Failure::Foreign => {
                Error::NotAStore { path, found: "it is a SQLite database of another program".to_string() }
            }
            write::Failure::Duplicate { comparison, trial } => {
                Error::Duplicate { path, comparison, arm: trial.arm, block: trial.block, attempt: trial.attempt }
            }
        }
    }
}

/// Makes an earlier version the latest one. Only a new comparison does so: a file that is merely read stays as it is.
fn upgrade(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < 2 {
        transaction.execute_batch("ALTER TABLE comparisons ADD COLUMN prove_all INTEGER NOT NULL DEFAULT 0")?;
    }
    if found < 3 {
        transaction.execute_batch("ALTER TABLE comparisons ADD COLUMN prepare TEXT")?;
    }
    if found < 4 {
        transaction.execute_batch("ALTER TABLE arms ADD COLUMN role TEXT")?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}

fn analysed(mut comparison: Comparison) -> Comparison {
    if comparison.ended == Ended::NotEnded {
        comparison.analysis = stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions);
    }
    comparison
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(PATIENCE_S))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

#[cfg(test)]
mod tests;
