//! Leased system settings: saved before, restored after success, error, a signal or SIGKILL.
//!
//! ```text
//! pagelab ── Lease ──┬─ writes ─► journal (disk)   ─► setting (sysfs, sysctl)
//!                    └─ writes ─► ledger (shared memory)
//!                                     ▲ reads
//! watchdog ───────────────────────────┘  when pagelab dies: puts back, removes the journal
//! recover() reads the journal            when both died
//! ```
//! At most one lease exists on a machine at a time. A lock file records the holder. The watchdog shares the lock, so no other
//! process gets the lease before the settings are restored. A process that changes nothing but needs settings to stay unchanged
//! takes a [`Share`] of the same lock. Other processes can then have a share too, but none can have the lease. Leases and shares
//! are given in the order of arrival: a share waits for a lease that was requested before it, so that shares cannot delay a lease
//! for ever. Therefore no process may wait for a share while it has one. The kernel releases the lock of a process that is gone,
//! however it ended (flock(2)). Every value is in the journal, on disk, and in the ledger before it is written to the setting.
//!
//! A setting is restored only while it has a value that the lease wrote (or a pool has fewer pages than the lease requested).
//! If it has another value, another process changed it: it is left unchanged and reported, with the command that would undo the
//! change.
//!
//! # Signals
//! The program handles its own signals. It may end its work and drop the lease, or simply exit: the watchdog restores the settings
//! of a lease whose process is gone, however it ended. A process that was forked and has not executed a program must not keep the
//! lease's descriptors open, because the watchdog would wait for it. Executed programs do not have the descriptors.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod error;
mod holder;
mod journal;
mod ledger;
mod lock;
mod private;
mod queue;
mod report;
mod setting;
mod site;
mod text;
mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use error::LeaseError;
pub use holder::Holder;
pub use report::{Report, ReportedOutcome, SettingReport};

use journal::{Journal, Record};
use ledger::Ledger;
use lock::Lock;
use setting::{Entry, File, Kind, Value};
use watchdog::Watchdog;

/// The directories in which a lease changes settings.
pub const ALLOWED: [&str; 3] = ["/sys/kernel/mm/", "/proc/sys/vm/", "/sys/devices/system/cpu/cpufreq/"];

/// A setting that the kernel recomputes when THP of PMD size is enabled or disabled (`set_recommended_min_free_kbytes`,
/// mm/khugepaged.c). An administrator's value would be lost.
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

/// The directories of the settings and of pagelab's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePaths {
    /// The directory that replaces `/` in the path of every setting.
    pub root: PathBuf,
    /// The directory of the lock; it does not survive a reboot.
    pub run: PathBuf,
    /// The directory of the journal; it survives a reboot.
    pub state: PathBuf,
}

/// The result of writing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The setting has the value.
    InFull,
    /// The pool has fewer pages than requested: there is no more contiguous free memory.
    Granted {
        /// Number of pages requested.
        asked: u64,
        /// Number of pages in the pool.
        got: u64,
    },
}

/// The result of [`recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// No journal: an earlier lease left nothing.
    Nothing,
    /// A journal of this boot, with the result for each of its settings.
    PutBack(Report),
    /// A journal of an earlier boot, which is void after the reboot; it is removed.
    Rebooted {
        /// Number of settings in the journal.
        settings: usize,
    },
}

/// A share of the lock: settings stay unchanged as long as any process has a share.
#[derive(Debug)]
pub struct Share {
    _lock: Lock,
}

/// What a process gets that decides from the current settings whether to change them.
#[derive(Debug)]
pub enum Hold {
    /// The process changes no setting.
    Share(Share),
    /// The process changes settings.
    Lease(Box<Lease>),
}

/// Leased system settings. Dropping it restores them.
pub struct Lease {
    paths: LeasePaths,
    lock: Option<Lock>,
    journal: Journal,
    ledger: Ledger,
    watchdog: Option<Watchdog>,
    recovered: Recovered,
}

impl Lease {
    /// Takes the lease of the host's settings. Waits for at most `patience` for the process that has it and for those that
    /// requested it earlier. `on_wait` is called about fifty times a second with the holder and the waiting time so far; it ends
    /// the waiting by returning `false`.
    ///
    /// Nothing is changed yet, except that settings left by an earlier lease are restored first ([`Lease::recovered`]). Fails with
    /// [`LeaseError::Held`] after `patience`, and with [`LeaseError::Interrupted`]. Also fails if a directory is not root's own, if
    /// the journal is corrupt or its settings cannot be restored, or if there is no process for the watchdog.
    pub fn acquire(patience: Duration, on_wait: impl FnMut(&Holder, Duration) -> bool) -> Result<Lease, LeaseError> {
        LeasePaths::host().acquire(patience, on_wait)
    }

    /// The settings of an earlier lease that were restored when this one began.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Sets a value for the duration of the lease, and verifies that the kernel accepted it. Fails if the path is not one
    /// that a lease changes; if the kernel lacks the setting, refuses the value or denies access; if the setting has another value
    /// after the write; or if another process changed the setting since the lease wrote it.
    pub fn set(&mut self, path: &str, wanted: &str) -> Result<Written, LeaseError> {
        if !self.watchdog.as_ref().is_some_and(Watchdog::is_alive) {
            return Err(LeaseError::WatchdogGone);
        }
        let kind = kind_of(path);
        let file = self.paths.file(path)?;
        let wanted = value(path, wanted, 1)?;
        let found = read(path, &file, kind)?;
        if found.as_bytes() == wanted.as_bytes() {
            return Ok(Written::InFull);
        }
        self.refuse_foreign(path, &file, &found)?;
        self.remember(path, Entry { file, kind, before: found, written: wanted })?;
        self.write(path, &file, &wanted)?;
        verify(path, kind, &wanted, &read(path, &file, kind)?)
    }

    /// Makes exactly these settings differ from their values before the lease: restores every other leased setting, then sets
    /// these in this order. Returns one result for each.
    pub fn apply<'a>(
        &mut self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Written>, LeaseError> {
        let settings: Vec<(&str, &str)> = settings.into_iter().collect();
        let wanted: BTreeMap<&str, &str> = settings.iter().copied().collect();
        let is_rest = |entry: &&Entry| !wanted.contains_key(self.paths.path_of(entry).as_str());
        let rest: Vec<Entry> = self.ledger.entries().iter().filter(is_rest).copied().collect();
        let report = self.paths.put_back_all(&rest);
        for setting in &report.settings {
            let path = setting.path.clone();
            match &setting.outcome {
                ReportedOutcome::Unchanged | ReportedOutcome::Restored => {}
                ReportedOutcome::Foreign { found } => {
                    return Err(LeaseError::ChangedByOther { path, found: found.clone() });
                }
                ReportedOutcome::Failed { reason } => {
                    let source = io::Error::other(reason.clone());
                    return Err(LeaseError::Io { operation: "put back", path, source });
                }
            }
        }
        settings.into_iter().map(|(path, value)| self.set(path, value)).collect()
    }

    /// Restores everything, removes the journal, ends the watchdog and releases the lock. If a setting could not be restored, the
    /// journal stays for [`recover`].
    pub fn restore(mut self) -> Result<Report, LeaseError> {
        self.end()
    }

    fn end(&mut self) -> Result<Report, LeaseError> {
        let report = self.paths.put_back_all(self.ledger.entries());
        let removed = if report.has_failed() { Ok(()) } else { journal::remove(&journal::path_in(&self.paths.state)) };
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        if let Some(lock) = self.lock.take() {
            lock.release();
        }
        removed.map(|()| report)
    }

    /// Checks that a leased setting still has a value that the lease wrote.
    fn refuse_foreign(&self, path: &str, file: &File, found: &Value) -> Result<(), LeaseError> {
        let same = |entry: &&Entry| entry.file.as_bytes() == file.as_bytes();
        let Some(first) = self.ledger.entries().iter().find(same) else { return Ok(()) };
        let mut own = self.ledger.entries().iter().filter(same);
        if found.as_bytes() == first.before.as_bytes() || own.any(|entry| entry.could_have_made(found)) {
            return Ok(());
        }
        Err(LeaseError::ChangedByOther { path: path.to_string(), found: found.lossy() })
    }

    /// Records a value that is about to be written in the journal and the ledger, unless it is already there.
    fn remember(&mut self, path: &str, entry: Entry) -> Result<(), LeaseError> {
        let same = |other: &&Entry| other.file.as_bytes() == entry.file.as_bytes();
        let known: Vec<&Entry> = self.ledger.entries().iter().filter(same).collect();
        if known.iter().any(|known| known.written.as_bytes() == entry.written.as_bytes()) {
            return Ok(());
        }
        let before = known.first().map_or(entry.before, |first| first.before);
        let mut entries = vec![(path.to_string(), Entry { before, ..entry })];
        if let Some(kept) = self.side_effect_of(path)? {
            entries.insert(0, (MIN_FREE.to_string(), kept));
        }
        if self.ledger.entries().len() + entries.len() > ledger::MAX_ENTRIES {
            return Err(LeaseError::Full { max: ledger::MAX_ENTRIES, path: path.to_string() });
        }
        let records: Vec<Record> = entries.iter().map(|(path, entry)| record(path, entry)).collect();
        self.journal.append(&records)?;
        for (path, entry) in &entries {
            let full = || LeaseError::Full { max: ledger::MAX_ENTRIES, path: path.clone() };
            self.ledger.push(entry).ok_or_else(full)?;
        }
        Ok(())
    }

    /// The setting that the kernel changes together with `path`, if it is not in the ledger yet. It is recorded before
    /// `path`, and therefore restored after `path`.
    fn side_effect_of(&self, path: &str) -> Result<Option<Entry>, LeaseError> {
        let is_thp = path.starts_with("/sys/kernel/mm/transparent_hugepage/") && path.ends_with("enabled");
        let file = self.paths.file(MIN_FREE)?;
        let is_known = self.ledger.entries().iter().any(|entry| entry.file.as_bytes() == file.as_bytes());
        if !is_thp || is_known {
            return Ok(None);
        }
        match setting::read(&file, Kind::KernelAdjusted) {
            Ok(before) => Ok(Some(Entry { file, kind: Kind::KernelAdjusted, before, written: Value::EMPTY })),
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(failed("read", MIN_FREE, "", errno)),
        }
    }

    fn write(&self, path: &str, file: &File, wanted: &Value) -> Result<(), LeaseError> {
        setting::write(file, wanted).map_err(|errno| match failed("write", path, &wanted.lossy(), errno) {
            LeaseError::Refused { path, value, .. } => {
                let takes = match host::content(file.lossy()) {
                    Ok(text) => text.trim().to_string(),
                    Err(error) => format!("unknown: {error}"),
                };
                LeaseError::Refused { path, value, takes }
            }
            other => other,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = self.end();
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let entries = self.ledger.entries().len();
        f.debug_struct("Lease").field("site", &self.paths).field("entries", &entries).finish_non_exhaustive()
    }
}

/// How long a watchdog may take to restore settings; a lease held for longer belongs to another process. Freeing a large pool
/// takes longest.
const WATCHDOG_TIME: Duration = Duration::from_secs(3);

/// Restores settings that an earlier lease left on the host when pagelab and its watchdog were both killed; for `pagelab restore`.
/// Fails if another process keeps the lease for seconds; its watchdog will restore the settings.
pub fn recover() -> Result<Recovered, LeaseError> {
    LeasePaths::host().recover()
}

fn kind_of(path: &str) -> Kind {
    let is_pool = path.ends_with("/nr_hugepages") || path.ends_with("/nr_hugepages_mempolicy");
    if is_pool { Kind::Pages } else { Kind::Value }
}

fn value(path: &str, text: &str, min_bytes: usize) -> Result<Value, LeaseError> {
    let max = setting::VALUE_BYTES - 1;
    let is_line = text.len() >= min_bytes && !text.contains(['\n', '\0']) && text.trim() == text;
    let value = is_line.then(|| Value::new(text.as_bytes())).flatten();
    value.ok_or_else(|| LeaseError::NotAValue { path: path.to_string(), value: text.to_string(), max })
}

fn read(path: &str, file: &File, kind: Kind) -> Result<Value, LeaseError> {
    setting::read(file, kind).map_err(|errno| failed("read", path, "", errno))
}

fn failed(operation: &'static str, path: &str, value: &str, errno: i32) -> LeaseError {
    LeaseError::of_setting(operation, path, value, io::Error::from_raw_os_error(errno))
}

fn record(path: &str, entry: &Entry) -> Record {
    let (before, written) = (entry.before.lossy(), entry.written.lossy());
    Record { path: path.to_string(), kind: entry.kind.into(), before, written }
}

fn verify(path: &str, kind: Kind, asked: &Value, got: &Value) -> Result<Written, LeaseError> {
    if asked.as_bytes() == got.as_bytes() {
        return Ok(Written::InFull);
    }
    let (asked, got) = (asked.lossy(), got.lossy());
    match (kind, asked.parse::<u64>(), got.parse::<u64>()) {
        (Kind::Pages, Ok(asked), Ok(got)) if got < asked => Ok(Written::Granted { asked, got }),
        _ => Err(LeaseError::NotTaken { path: path.to_string(), asked, got }),
    }
}
