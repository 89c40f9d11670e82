//! Taking, sharing and recovering what lies at a site.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::LeaseError;
use super::holder::Holder;
use super::journal::{self, Journal, Record};
use super::ledger::Ledger;
use super::lock::{self, Lock, Mode};
use super::report::Report;
use super::setting::{self, Entry, File};
use super::watchdog::Watchdog;
use super::{ALLOWED, Lease, Recovered, Share, Site, WATCHDOG_TIME, value};

impl Site {
    /// The running host.
    pub fn host() -> Site {
        Site { root: "/".into(), run: host::LEASE_DIRECTORY.into(), state: "/var/lib/pagelab".into() }
    }

    /// A tree below `root`, for tests: settings, lock and journal all lie in it.
    pub fn under(root: &Path) -> Site {
        Site { root: root.into(), run: root.join("run/pagelab"), state: root.join("var/lib/pagelab") }
    }

    /// Takes the lease of this site; see [`Lease::acquire`].
    ///
    /// # Errors
    /// See [`Lease::acquire`].
    pub fn acquire(
        &self,
        patience: Duration,
        on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Lease, LeaseError> {
        let lock = self.lock(Mode::Exclusive, patience, on_wait)?;
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
        Ok(Lease { site: self.clone(), lock, journal, ledger, watchdog, recovered })
    }

    /// Puts back what an earlier lease of this site left; see [`recover`](super::recover).
    ///
    /// # Errors
    /// See [`recover`](super::recover).
    pub fn recover(&self) -> Result<Recovered, LeaseError> {
        let lock = self.lock(Mode::Exclusive, WATCHDOG_TIME, |_, _| true)?;
        let recovered = self.replay();
        lock.release();
        recovered
    }

    /// Keeps the settings of this site as they are, beside others who do the same; see [`Share::acquire`].
    ///
    /// # Errors
    /// See [`Share::acquire`].
    pub fn share(
        &self,
        patience: Duration,
        mut on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Share, LeaseError> {
        let lock = self.lock(Mode::Shared, patience, &mut on_wait)?;
        let journal = journal::path_in(&self.state);
        if !journal.try_exists().map_err(|source| LeaseError::of_file("look for", &journal, source))? {
            return Ok(Share { _lock: lock });
        }
        // Settings of a lease that died are still in force, and to put them back takes a lease.
        lock.release();
        self.acquire(patience, &mut on_wait)?.restore()?;
        Ok(Share { _lock: self.lock(Mode::Shared, patience, &mut on_wait)? })
    }

    fn lock(
        &self,
        mode: Mode,
        patience: Duration,
        on_wait: impl FnMut(&Holder, Duration) -> bool,
    ) -> Result<Lock, LeaseError> {
        lock::private_directory(&self.run)?;
        lock::private_directory(&self.state)?;
        Lock::take(&lock::path_in(&self.run), mode, patience, on_wait)
    }

    /// With the lock held: puts back what the journal says, and removes it unless something failed.
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

    /// Puts back every setting in `entries`, the last one first.
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

    /// The file of a setting that a lease may change.
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

impl Share {
    /// Keeps the host's settings as they are, waiting for at most `patience` for whoever has the lease, as
    /// [`Lease::acquire`] does. Nothing is written, but what an earlier lease left behind is put back first.
    ///
    /// # Errors
    /// Those of [`Lease::acquire`].
    pub fn acquire(patience: Duration, on_wait: impl FnMut(&Holder, Duration) -> bool) -> Result<Share, LeaseError> {
        Site::host().share(patience, on_wait)
    }
}
