//! System settings on loan: saved before, put back after success, error, a signal or SIGKILL.
//!
//! ```text
//! pagelab ── Lease ──┬─ writes ─► journal (disk)   ─► setting (sysfs, sysctl)
//!                    └─ writes ─► ledger (shared memory)
//!                                     ▲ reads
//! watchdog ───────────────────────────┘  when pagelab dies: puts back, removes the journal
//! recover() reads the journal            when both died
//! ```
//! One lease exists at a time on a machine. A lock file says who has it; the watchdog shares the lock, so
//! that nobody gets the lease before the settings are back. Who changes nothing, and needs settings to stay as they are,
//! has a [`Share`] of the same lock: then others can have that too, and no process the lease. Both are given in the order of
//! arrival: a share waits for a lease that was asked for before it, so that shares cannot put a lease off for ever. No
//! process may therefore wait for a share while it has one. The kernel frees the lock of a process that is gone, however
//! it went (flock(2)). Every value is in the journal, on the disk,
//! and in the ledger before it is written to the setting.
//!
//! A setting is put back only while it has a value that the lease wrote (or fewer pages of a pool than
//! the lease asked for). Where it has another one, somebody else changed it: it is left alone and
//! reported, with the command that would undo it.
//!
//! # Signals
//! The program handles its own. It may end its work and drop the lease, or simply exit: a lease whose
//! process is gone is put back by the watchdog, whatever ended the process. What must not happen is that
//! a process that was forked and not executed keeps the lease's descriptors open: the watchdog would
//! wait for it. Executed programs do not have them.
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
pub use report::{Fate, Report, SettingReport};

use journal::{Journal, Record};
use ledger::Ledger;
use lock::Lock;
use setting::{Entry, File, Kind, Value};
use watchdog::Watchdog;

/// Where settings may lie that a lease changes.
pub const ALLOWED: [&str; 3] = ["/sys/kernel/mm/", "/proc/sys/vm/", "/sys/devices/system/cpu/cpufreq/"];

/// The kernel recomputes it when THP of PMD size is switched on or off (`set_recommended_min_free_kbytes`,
/// mm/khugepaged.c), and an administrator's own value would be lost.
const MIN_FREE: &str = "/proc/sys/vm/min_free_kbytes";

/// Where the settings and pagelab's own files lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Stands for `/` before the name of every setting.
    pub root: PathBuf,
    /// Holds the lock; gone after a reboot.
    pub run: PathBuf,
    /// Holds the journal; survives a reboot.
    pub state: PathBuf,
}

/// What became of a value that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The setting has it.
    Whole,
    /// The pool has fewer pages than asked for: there is no more free contiguous memory.
    Granted {
        /// Pages asked for.
        asked: u64,
        /// Pages that the pool has.
        got: u64,
    },
}

/// What [`recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// No journal: nothing is left of an earlier lease.
    Nothing,
    /// A journal of this boot; what became of its settings.
    PutBack(Report),
    /// A journal of an earlier boot, which the reboot made void; it is removed.
    Rebooted {
        /// How many settings it named.
        settings: usize,
    },
}

/// Settings stay as they are while it lives, for all who have one.
#[derive(Debug)]
pub struct Share {
    _lock: Lock,
}

/// What a process has whose need to change settings depends on how they are.
#[derive(Debug)]
pub enum Hold {
    /// It changes none.
    Share(Share),
    /// It changes some.
    Lease(Box<Lease>),
}

/// System settings on loan. Dropping it puts them back.
pub struct Lease {
    site: Site,
    lock: Option<Lock>,
    journal: Journal,
    ledger: Ledger,
    watchdog: Option<Watchdog>,
    recovered: Recovered,
}

impl Lease {
    /// Takes the lease of the host's settings, waiting for at most `patience` for the process that has it and for those that asked before.
    /// `on_wait` hears who has it and for how long this process has waited, about fifty times a second; it ends the
    /// waiting with `false`.
    ///
    /// Nothing is changed yet, but what an earlier lease left behind is put back first
    /// ([`Lease::recovered`]).
    ///
    /// # Errors
    /// [`LeaseError::Held`] after `patience`, [`LeaseError::Interrupted`]; directories that are not root's
    /// own; a corrupt journal, or one whose settings cannot be put back; no process for the watchdog.
    pub fn acquire(patience: Duration, on_wait: impl FnMut(&Holder, Duration) -> bool) -> Result<Lease, LeaseError> {
        Site::host().acquire(patience, on_wait)
    }

    /// What was left of an earlier lease and put back when this one began.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Gives a setting a value for the time of the lease, and verifies that the kernel took it.
    ///
    /// # Errors
    /// The path is not one that a lease changes, the kernel lacks the setting, refuses the value or this
    /// process, took another value, or somebody else changed the setting since the lease wrote it.
    pub fn set(&mut self, path: &str, wanted: &str) -> Result<Taken, LeaseError> {
        if !self.watchdog.as_ref().is_some_and(Watchdog::is_alive) {
            return Err(LeaseError::WatchdogGone);
        }
        let kind = kind_of(path);
        let file = self.site.file(path)?;
        let wanted = value(path, wanted, 1)?;
        let found = read(path, &file, kind)?;
        if found.as_bytes() == wanted.as_bytes() {
            return Ok(Taken::Whole);
        }
        self.refuse_foreign(path, &file, &found)?;
        self.remember(path, Entry { file, kind, before: found, written: wanted })?;
        self.write(path, &file, &wanted)?;
        verify(path, kind, &wanted, &read(path, &file, kind)?)
    }

    /// Makes exactly these settings differ from what was before the lease: every other leased setting
    /// gets its old value back, then these are set, in this order. The answer has one entry for each.
    ///
    /// # Errors
    /// As [`Lease::set`].
    pub fn apply<'a>(
        &mut self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Taken>, LeaseError> {
        let settings: Vec<(&str, &str)> = settings.into_iter().collect();
        let wanted: BTreeMap<&str, &str> = settings.iter().copied().collect();
        let is_rest = |entry: &&Entry| !wanted.contains_key(self.site.path_of(entry).as_str());
        let rest: Vec<Entry> = self.ledger.entries().iter().filter(is_rest).copied().collect();
        let report = self.site.put_back_all(&rest);
        for setting in &report.settings {
            let path = setting.path.clone();
            match &setting.fate {
                Fate::Unchanged | Fate::Restored => {}
                Fate::Foreign { found } => return Err(LeaseError::ChangedByOther { path, found: found.clone() }),
                Fate::Failed { reason } => {
                    let source = io::Error::other(reason.clone());
                    return Err(LeaseError::Io { operation: "put back", path, source });
                }
            }
        }
        settings.into_iter().map(|(path, value)| self.set(path, value)).collect()
    }

    /// Puts everything back, removes the journal, dismisses the watchdog and lets the lock go. Where a
    /// setting could not be put back the journal stays, for [`recover`].
    ///
    /// # Errors
    /// The journal cannot be removed.
    pub fn restore(mut self) -> Result<Report, LeaseError> {
        self.end()
    }

    fn end(&mut self) -> Result<Report, LeaseError> {
        let report = self.site.put_back_all(self.ledger.entries());
        let removed = if report.has_failed() { Ok(()) } else { journal::remove(&journal::path_in(&self.site.state)) };
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        if let Some(lock) = self.lock.take() {
            lock.release();
        }
        removed.map(|()| report)
    }

    /// A leased setting must still have a value of the lease's own.
    fn refuse_foreign(&self, path: &str, file: &File, found: &Value) -> Result<(), LeaseError> {
        let same = |entry: &&Entry| entry.file.as_bytes() == file.as_bytes();
        let Some(first) = self.ledger.entries().iter().find(same) else { return Ok(()) };
        let mut own = self.ledger.entries().iter().filter(same);
        if found.as_bytes() == first.before.as_bytes() || own.any(|entry| entry.could_have_made(found)) {
            return Ok(());
        }
        Err(LeaseError::ChangedByOther { path: path.to_string(), found: found.lossy() })
    }

    /// Puts a value that is about to be written into the journal and the ledger, unless it is there.
    fn remember(&mut self, path: &str, entry: Entry) -> Result<(), LeaseError> {
        let same = |other: &&Entry| other.file.as_bytes() == entry.file.as_bytes();
        let known: Vec<&Entry> = self.ledger.entries().iter().filter(same).collect();
        if known.iter().any(|known| known.written.as_bytes() == entry.written.as_bytes()) {
            return Ok(());
        }
        let before = known.first().map_or(entry.before, |first| first.before);
        let mut entries = vec![(path.to_string(), Entry { before, ..entry })];
        if let Some(kept) = self.kept_with(path)? {
            entries.insert(0, (MIN_FREE.to_string(), kept));
        }
        if self.ledger.entries().len() + entries.len() > ledger::MOST {
            return Err(LeaseError::Full { most: ledger::MOST, path: path.to_string() });
        }
        let records: Vec<Record> = entries.iter().map(|(path, entry)| record(path, entry)).collect();
        self.journal.append(&records)?;
        for (path, entry) in &entries {
            let full = || LeaseError::Full { most: ledger::MOST, path: path.clone() };
            self.ledger.push(entry).ok_or_else(full)?;
        }
        Ok(())
    }

    /// The setting that the kernel changes together with `path`, if it is not in the ledger yet. It comes
    /// before the other one, so that it is put back after it.
    fn kept_with(&self, path: &str) -> Result<Option<Entry>, LeaseError> {
        let is_thp = path.starts_with("/sys/kernel/mm/transparent_hugepage/") && path.ends_with("enabled");
        let file = self.site.file(MIN_FREE)?;
        let is_known = self.ledger.entries().iter().any(|entry| entry.file.as_bytes() == file.as_bytes());
        if !is_thp || is_known {
            return Ok(None);
        }
        match setting::read(&file, Kind::Kept) {
            Ok(before) => Ok(Some(Entry { file, kind: Kind::Kept, before, written: Value::EMPTY })),
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
        f.debug_struct("Lease").field("site", &self.site).field("entries", &entries).finish_non_exhaustive()
    }
}

/// How long a watchdog may take to put settings back, before it is no watchdog that has the lease: freeing a large
/// pool takes the longest.
const WATCHDOG_TIME: Duration = Duration::from_secs(3);

/// Puts back what an earlier lease left on the host when pagelab and its watchdog were both killed; for
/// `pagelab restore`.
///
/// # Errors
/// Somebody has the lease and keeps it for seconds (their watchdog will put things back), or the journal cannot be
/// read.
pub fn recover() -> Result<Recovered, LeaseError> {
    Site::host().recover()
}

fn kind_of(path: &str) -> Kind {
    let is_pool = path.ends_with("/nr_hugepages") || path.ends_with("/nr_hugepages_mempolicy");
    if is_pool { Kind::Pages } else { Kind::Value }
}

fn value(path: &str, text: &str, least: usize) -> Result<Value, LeaseError> {
    let most = setting::VALUE_BYTES - 1;
    let is_line = text.len() >= least && !text.contains(['\n', '\0']) && text.trim() == text;
    let value = is_line.then(|| Value::new(text.as_bytes())).flatten();
    value.ok_or_else(|| LeaseError::NotAValue { path: path.to_string(), value: text.to_string(), most })
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

fn verify(path: &str, kind: Kind, asked: &Value, got: &Value) -> Result<Taken, LeaseError> {
    if asked.as_bytes() == got.as_bytes() {
        return Ok(Taken::Whole);
    }
    let (asked, got) = (asked.lossy(), got.lossy());
    match (kind, asked.parse::<u64>(), got.parse::<u64>()) {
        (Kind::Pages, Ok(asked), Ok(got)) if got < asked => Ok(Taken::Granted { asked, got }),
        _ => Err(LeaseError::NotTaken { path: path.to_string(), asked, got }),
    }
}
