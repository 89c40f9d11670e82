//! Takes, shares and recovers the lease of a site.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::LeaseError;
use super::holder::Holder;
use super::journal::{self, Journal, Record};
use super::ledger::Ledger;
use super::lock::{Lock, Mode};
use super::private;
use super::queue::Ticket;
use super::report::Report;
use super::setting::{self, Entry, File};
use super::watchdog::Watchdog;
use super::{ALLOWED, Hold, Lease, LeasePaths, Recovered, Share, WATCHDOG_TIME, value};

impl LeasePaths {
    /// The site of the running host.
    pub fn host() -> LeasePaths {
        LeasePaths { root: "/".into(), run: host::LEASE_DIRECTORY.into(), state: "/var/lib/pagelab".into() }
    }

    /// A tree below `root`, for tests: settings, lock and journal are all in it.
    pub fn under(root: &Path) -> LeasePaths {
        LeasePaths { root: root.into(), run: root.join("run/pagelab"), state: root.join("var/lib/pagelab") }
    }

    /// Takes the lease of this site; see [`Lease::acquire`].
    pub fn acquire(
        &self,
        patience: Duration,
        on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Lease, LeaseError> {
        let ticket = self.ticket()?;
        self.begin(Lock::take(&self.run, &ticket, Mode::Exclusive, patience, on_wait)?)
    }

    /// Restores settings that an earlier lease of this site left; see [`recover`](super::recover).
    pub fn recover(&self) -> Result<Recovered, LeaseError> {
        let lock = Lock::take(&self.run, &self.ticket()?, Mode::Exclusive, WATCHDOG_TIME, |_, _| true)?;
        let recovered = self.replay();
        lock.release();
        recovered
    }

    /// Keeps the settings of this site as they are, or leases them; see [`Hold::acquire`].
    pub fn hold(
        &self,
        patience: Duration,
        mut on_wait: impl FnMut(&Holder, Duration) -> bool,
        must_change: impl FnOnce() -> bool,
    ) -> Result<Hold, LeaseError> {
        let ticket = self.ticket()?;
        let mut take = |mode| Lock::take(&self.run, &ticket, mode, patience, &mut on_wait);
        let mut lock = take(Mode::Shared)?;
        let journal = journal::path_in(&self.state);
        if journal.try_exists().map_err(|source| LeaseError::of_file("look for", &journal, source))? {
            // Settings of a lease that died are still in force, and restoring them requires a lease.
            lock.release();
            self.begin(take(Mode::Exclusive)?)?.restore()?;
            lock = take(Mode::Shared)?;
        }
        if !must_change() {
            return Ok(Hold::Share(Share { _lock: lock }));
        }
        lock.release();
        self.begin(take(Mode::Exclusive)?).map(|lease| Hold::Lease(Box::new(lease)))
    }

    fn ticket(&self) -> Result<Ticket, LeaseError> {
        private::directory(&self.run)?;
        private::directory(&self.state)?;
        Ticket::take(&self.run)
    }

    /// Begins a lease with its lock.
    fn begin(&self, lock: Lock) -> Result<Lease, LeaseError> {
        let recovered = self.replay()?;
        if let Recovered::PutBack(report) = &recovered
            && report.has_failed()
        {
            return Err(LeaseError::Unrestored { report: report.clone() });
        }
        let path = journal::path_in(&self.state);
        let journal = Journal::new(path.clone(), self.boot_id()?)?;
        let ledger = Ledger::map().map_err(|source| LeaseError::of_file("map memory for", &path, source))?;
        let watchdog = Watchdog::start(&ledger, &lock, &path)
            .map_err(|source| LeaseError::of_file("start the watchdog of", &path, source))?;
        let (lock, watchdog) = (Some(lock), Some(watchdog));
        Ok(Lease { paths: self.clone(), lock, journal, ledger, watchdog, recovered })
    }

    /// With the lock held: restores the settings in the journal, and removes it unless something failed.
    fn replay(&self) -> Result<Recovered, LeaseError> {
        let path = journal::path_in(&self.state);
        let Some(found) = journal::read(&path)? else { return Ok(Recovered::Nothing) };
        if found.header.boot_id != self.boot_id()? {
            journal::remove(&path)?;
            let paths: std::collections::BTreeSet<&String> = found.records.iter().map(|record| &record.path).collect();
            return Ok(Recovered::Rebooted { settings: paths.len() });
        }
        let numbered = found.records.iter().enumerate();
        let entries: Result<Vec<Entry>, LeaseError> = numbered
            .map(|(index, record)| {
                self.entry(record).map_err(|error| LeaseError::JournalCorrupt {
                    path: path.clone(),
                    line: index + 2,
                    what: error.to_string(),
                })
            })
            .collect();
        let report = self.put_back_all(&entries?);
        if !report.has_failed() {
            journal::remove(&path)?;
        }
        Ok(Recovered::PutBack(report))
    }

    /// Restores every setting in `entries`, the last one first.
    pub(super) fn put_back_all(&self, entries: &[Entry]) -> Report {
        let mut report = Report::default();
        setting::put_back_all(entries, |entry, outcome| report.add(self.path_of(entry), entry, outcome));
        report
    }

    fn boot_id(&self) -> Result<String, LeaseError> {
        let path = self.root.join("proc/sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(&path);
        text.map(|text| text.trim().to_string()).map_err(|source| LeaseError::of_file("read", &path, source))
    }

    fn entry(&self, record: &Record) -> Result<Entry, LeaseError> {
        Ok(Entry {
            file: self.file(&record.path)?,
            kind: record.kind.into(),
            before: value(&record.path, &record.before, 0)?,
            written: value(&record.path, &record.written, 0)?,
        })
    }

    /// The file of a setting, if a lease may change it.
    pub(super) fn file(&self, path: &str) -> Result<File, LeaseError> {
        let not_allowed = || LeaseError::NotAllowed { path: path.to_string(), allowed: ALLOWED.join(", ") };
        let is_plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | "..")) && !path.contains('\0');
        if !is_plain || !ALLOWED.iter().any(|prefix| path.starts_with(prefix)) {
            return Err(not_allowed());
        }
        let file = self.root.join(path.trim_start_matches('/'));
        File::new(file.as_os_str().as_encoded_bytes()).ok_or_else(not_allowed)
    }

    /// The path of a setting, without the root.
    pub(super) fn path_of(&self, entry: &Entry) -> String {
        let file = PathBuf::from(entry.file.lossy());
        file.strip_prefix(&self.root).map_or(entry.file.lossy(), |path| format!("/{}", path.display()))
    }
}

impl Hold {
    /// Waits until no lease changes the host's settings, for at most `patience` as in [`Lease::acquire`], and then calls
    /// `must_change`. If it returns false, settings stay unchanged for this process and for others that change none. Nothing is
    /// written then, except that settings left by an earlier lease are restored first. If it returns true, this process takes the
    /// lease, before all processes that requested it later.
    pub fn acquire(
        patience: Duration,
        on_wait: impl FnMut(&Holder, Duration) -> bool,
        must_change: impl FnOnce() -> bool,
    ) -> Result<Hold, LeaseError> {
        LeasePaths::host().hold(patience, on_wait, must_change)
    }
}
