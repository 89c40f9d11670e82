//! The store: all comparisons, raw, in one SQLite file that several processes may write concurrently.
//!
//! A trial is one transaction, so a killed run loses at most the trial in progress. The journal is a write-ahead log:
//! readers do not wait for writers, and writers wait for each other for up to half a minute. The log is synced with
//! every trial, so a power failure loses no more than a kill. A file system without shared memory between processes
//! (NFS) is not suitable, as SQLite documents (<https://sqlite.org/wal.html>).
//!
//! A store may be a file that another user can write. So SQLite is configured not to trust the file, and every
//! transaction has a time limit. Before anything else is read, the schema is compared with the one that pagelab
//! creates, and again whenever the schema has changed. If a store is removed or replaced while it is open, this is
//! noticed before the next write.
//!
//! `docs/reference/formats/store.md` describes the tables for users of other tools.

mod aside;
mod bound;
mod columns;
mod connection;
mod error;
mod index;
mod of_study;
mod place;
mod read;
mod read_only;
mod schema;
mod study_lock;
mod summary;
mod trials;
mod whole;
mod write;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::fstat;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use study::advice::Advice;
use study::comparison::{Comparison, Ended};
use study::stats::{self, Analysis};
use study::trial::TrialRecord;

pub use error::Error;
pub use of_study::{OfStudy, Resolution, Resumption, Simulation};
pub use place::default_path;
pub use study_lock::StudyLock;
pub use summary::Summary;

use bound::Bound;
use connection::{Access, connect};
use place::StoreFile;
use read_only::FileState;

/// The version of the schema; the file's `user_version`.
const VERSION: i64 = 1;
/// The file's `application_id`: `pglb` in ASCII.
const APPLICATION: i64 = 0x7067_6c62;

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// The file as opened. Holding it open prevents reuse of its inode number.
    file: OwnedFd,
    /// Device and inode of the write-ahead log, once it exists.
    log: Cell<Option<(u64, u64)>>,
    must_stop: fn() -> bool,
    bound: Arc<Bound>,
    /// SQLite's schema version counter when the schema was last checked.
    checked_schema: Cell<Option<i64>>,
    /// The state of the file when it was opened, if SQLite reads it without locks.
    unlocked_state: Option<FileState>,
}

impl Store {
    /// Opens the store at `path`, or creates it. Leaves the file unchanged if it is not a store, is damaged, or was written by
    /// a later version of pagelab.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
        Store::open_until(path, || false)
    }

    /// Same as [`Store::open`]. Once `must_stop` returns true, every operation of the store ends within a few seconds.
    pub fn open_until(path: impl AsRef<Path>, must_stop: fn() -> bool) -> Result<Store, Error> {
        index::open_with_own_index(|| Store::open_once(path.as_ref(), must_stop))
    }

    fn open_once(path: &Path, must_stop: fn() -> bool) -> Result<Store, Error> {
        let StoreFile { path, file } = place::prepare(path)?;
        let bound = Arc::new(Bound::new(must_stop));
        let connection = connect(&path, Access::Write, bound.clone());
        let connection = connection.map_err(|error| Error::from_sqlite(&path, error))?;
        let (log, checked_schema) = (Cell::new(None), Cell::new(None));
        let store = Store { connection, path, file, log, must_stop, bound, checked_schema, unlocked_state: None };
        store.check_or_create()?;
        store.refuse_gone()?;
        Ok(store)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a new comparison with its existing trials, and returns its id. After an error (such as [`Error::Full`],
    /// [`Error::ReadOnly`] or [`Error::Busy`]) nothing of the comparison is stored.
    pub fn begin(&self, comparison: &Comparison) -> Result<i64, Error> {
        self.write(|transaction| begin(transaction, comparison))
    }

    /// Adds a trial to a comparison, completely or not at all. When this returns, the trial is on disk.
    pub fn append(&self, id: i64, record: &TrialRecord) -> Result<(), Error> {
        self.write(|transaction| write::trial(transaction, id, record, &mut write::LastSettings::default()))
    }

    /// Stores the analysis, and why the comparison ended. A later call replaces both.
    pub fn finish(&self, id: i64, analysis: Option<&Analysis>, ended: &Ended) -> Result<(), Error> {
        self.write(|transaction| write::end(transaction, id, analysis, ended))
    }

    /// Stores the advice of a comparison. A later call replaces it.
    pub fn advise(&self, id: i64, advice: &Advice) -> Result<(), Error> {
        self.write(|transaction| write::advice(transaction, id, advice))
    }

    /// Loads the comparison with this ID, as far as it has been stored. If the comparison has not ended, because it is running or
    /// was killed, the result includes the analysis of its trials so far. Content that pagelab never writes gives
    /// [`Error::Damaged`].
    pub fn load(&self, id: i64) -> Result<Comparison, Error> {
        self.read(|transaction| read::comparison(transaction, id))?
            .map(analysed)
            .ok_or_else(|| Error::NoSuchComparison { path: self.path.clone(), id })
    }

    /// All comparisons, oldest first.
    pub fn list(&self) -> Result<Vec<Summary>, Error> {
        self.read(read::summaries)
    }

    /// The comparison that began last; `None` in an empty store.
    pub fn latest(&self) -> Result<Option<Comparison>, Error> {
        self.read(|transaction| {
            let id: Option<i64> = transaction.query_row("SELECT max(id) FROM comparisons", [], |row| row.get(0))?;
            id.map_or(Ok(None), |id| read::comparison(transaction, id))
        })
        .map(|comparison| comparison.map(analysed))
    }

    /// The first comparison with an ID below `before` that warned about free page reporting on this host
    /// ([`policy::machine::Machine::host_id`]).
    pub fn first_warned_of_reporting(&self, host_id: Option<&str>, before: i64) -> Result<Option<i64>, Error> {
        self.read(|transaction| read::first_warned_of_reporting(transaction, host_id, before))
    }

    fn check_or_create(&self) -> Result<(), Error> {
        match self.pragma("user_version")? {
            0 => self.create()?,
            VERSION => self.check_application()?,
            found => return Err(Error::OtherVersion { path: self.path.clone(), found, known: VERSION }),
        }
        // Reading first checks the schema: a store with an unknown schema must not be changed.
        self.read(|_| Ok(()))?;
        self.use_write_ahead_log()
    }

    /// Checks the schema, if it has changed since the last check.
    fn check_schema(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let sqlite = |error| Error::from_sqlite(&self.path, error);
        let pragma =
            |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(sqlite);
        let (version, state) = (pragma("user_version")?, pragma("schema_version")?);
        if version == 0 || self.checked_schema.get() == Some(state) {
            return Ok(());
        }
        if let Some(found) = schema::deviation(transaction).map_err(sqlite)? {
            return Err(Error::OtherSchema { path: self.path.clone(), found });
        }
        self.checked_schema.set(Some(state));
        Ok(())
    }

    /// Refuses to write if the opened file is no longer at its path, because the data would be lost.
    fn refuse_gone(&self) -> Result<(), Error> {
        let gone = |what| Err(Error::Gone { path: self.path.clone(), what });
        let own = fstat(&self.file).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        match place::identity(&self.path) {
            None => return gone("removed"),
            there if there != own => return gone("replaced by another file"),
            _ => {}
        }
        match (self.log.get(), self.log_identity()) {
            (Some(_), None) => gone("parted from its write-ahead log, which was removed,"),
            (Some(own), Some(there)) if own != there => gone("parted from its write-ahead log, which was replaced,"),
            _ => Ok(()),
        }
    }

    /// Device and inode of the write-ahead log at its path.
    fn log_identity(&self) -> Option<(u64, u64)> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        place::identity(Path::new(&log))
    }

    fn create(&self) -> Result<(), Error> {
        self.write(|transaction| {
            let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            if pragma("user_version")? != 0 {
                return Ok(()); // Another process has initialised the store.
            }
            let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables > 0 || pragma("application_id")? != 0 {
                return Err(write::Failure::Foreign);
            }
            schema::create(transaction)?;
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

    /// Switches the store to a write-ahead log, permanently. SQLite does not wait for the lock that this change
    /// requires, so it is retried. If the file system does not support the log, SQLite keeps its rollback journal,
    /// which is equally safe.
    fn use_write_ahead_log(&self) -> Result<(), Error> {
        self.patiently(|| {
            let mode = self.connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
            mode.map_err(|error| Error::from_sqlite(&self.path, error))
        })
    }

    /// Runs an operation, and repeats it while another process has locked the store.
    fn patiently<T>(&self, act: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        self.bound.begin();
        loop {
            match act() {
                Err(Error::Busy { path, .. }) if self.bound.is_out_of_patience() => {
                    return Err(Error::Busy { path, waited_s: self.bound.elapsed_s() });
                }
                Err(Error::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
                Err(Error::TooLong { path, .. }) => {
                    return Err(Error::TooLong { path, worked_s: self.bound.elapsed_s() });
                }
                result => return result,
            }
        }
    }

    fn pragma(&self, name: &str) -> Result<i64, Error> {
        self.patiently(|| {
            let value = self.connection.pragma_query_value(None, name, |row| row.get(0));
            value.map_err(|error| Error::from_sqlite(&self.path, error))
        })
    }

    fn write<T>(&self, body: impl Fn(&Transaction<'_>) -> Result<T, write::Failure>) -> Result<T, Error> {
        let value = self.patiently(|| {
            self.refuse_gone()?;
            let transaction = self.begin_transaction(TransactionBehavior::Immediate)?;
            let value = body(&transaction).map_err(|failure| self.failed(failure))?;
            transaction.commit().map_err(|error| Error::from_sqlite(&self.path, error))?;
            Ok(value)
        })?;
        // Success is reported only if the file was not removed meanwhile.
        self.refuse_gone().map(|()| value)
    }

    fn read<T>(&self, body: impl Fn(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.patiently(|| {
            let transaction = self.begin_transaction(TransactionBehavior::Deferred)?;
            let value = body(&transaction).map_err(|error| Error::from_sqlite(&self.path, error));
            // If the file changed during the read, the data or the error may mix two transactions.
            self.unlocked_state.as_ref().map_or(Ok(()), |state| state.check(&self.path)).and(value)
        })
    }

    fn begin_transaction(&self, behavior: TransactionBehavior) -> Result<Transaction<'_>, Error> {
        let begin = Transaction::new_unchecked(&self.connection, behavior);
        let transaction = begin.map_err(|error| Error::from_sqlite(&self.path, error))?;
        self.check_schema(&transaction)?;
        // From here on SQLite has the log open, so no other process that ends removes the log.
        self.log.set(self.log.get().or_else(|| self.log_identity()));
        Ok(transaction)
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

fn begin(transaction: &Transaction<'_>, comparison: &Comparison) -> Result<i64, write::Failure> {
    let id = write::comparison(transaction, comparison)?;
    let mut known = write::LastSettings::default();
    comparison.trials.iter().try_for_each(|record| write::trial(transaction, id, record, &mut known))?;
    Ok(id)
}

fn analysed(mut comparison: Comparison) -> Comparison {
    if comparison.ended == Ended::NotEnded {
        comparison.analysis = stats::analyse(&comparison.design, &comparison.trials, &comparison.admissions);
    }
    comparison
}

#[cfg(test)]
mod tests;
