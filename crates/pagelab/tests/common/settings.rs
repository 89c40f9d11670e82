//! The host's settings for the tests, and the locks that control who may change them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lease::Lease;
use serde_json::Value;
pub use validation::Alone;

use super::{LIMIT, Running, within};

/// The directory of the lock of pagelab's lease.
const LEASE: &str = "/run/pagelab";

/// While this exists, no pagelab can change a setting, because the test holds the lease itself.
pub struct LeaseGuard {
    pub lease: Lease,
    _alone: Alone,
}

impl LeaseGuard {
    /// Waits for the lease, and frees large blocks, because another test or a build may have used them up. Needs root.
    pub fn wait() -> LeaseGuard {
        let alone = Alone::wait();
        let lease = lease();
        validation::free_large_blocks();
        LeaseGuard { lease, _alone: alone }
    }
}

/// Takes the lease for the test itself: while it exists, no pagelab changes a setting. Needs root.
pub fn lease() -> Lease {
    Lease::acquire(LIMIT, |_, _| true).unwrap_or_else(|error| panic!("{error}"))
}

/// Locks a file. If another process holds the lock for too long, the failure names it.
fn locked(path: &Path, patience: Duration) -> File {
    let file = File::options().create(true).append(true).open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    if !within(patience, || file.try_lock().is_ok()) {
        panic!("{path:?} is still locked after {patience:?}, by {:?}", fs::read_to_string(path).unwrap_or_default());
    }
    file
}

/// Waits until the run holds the lease. It is then about to change a setting, or has changed some.
pub fn await_lease(child: &Running) {
    await_lease_in(Path::new(LEASE), child);
}

/// Like [`await_lease`], but for the lease of a directory.
pub(super) fn await_lease_in(directory: &Path, child: &Running) {
    // Another comparison on this host may hold the lease for a while.
    assert!(within(LIMIT, || leaseholder_in(directory) == Some(child.id())), "it never had the lease");
}

/// The process that holds the lease of the host's settings, according to the lock file.
pub fn leaseholder() -> Option<u32> {
    leaseholder_in(Path::new(LEASE))
}

/// Like [`leaseholder`], but for the lease of a directory.
pub(super) fn leaseholder_in(directory: &Path) -> Option<u32> {
    let text = fs::read_to_string(directory.join("lease.lock")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?["pid"].as_u64()?.try_into().ok()
}

/// The settings at a moment when no pagelab holds the lease. Waits for the end of an active watchdog, or of another comparison on
/// this host.
pub fn settings_at_rest() -> Settings {
    let _lease = lease();
    settings()
}

/// The settings at a moment when no process holds the lease of a directory. Settings that an earlier holder left changed are
/// not restored.
pub(super) fn settings_at_rest_in(directory: &Path) -> Settings {
    let _lock = locked(&directory.join("lease.lock"), LIMIT);
    settings()
}

/// Settings with their values.
pub type Settings = Vec<(PathBuf, String)>;

/// Every THP, mTHP and hugetlb setting with its value, read without pagelab.
pub fn settings() -> Settings {
    let mut found = Vec::new();
    for directory in ["/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages"] {
        collect(Path::new(directory), &mut found);
    }
    for name in ["min_free_kbytes", "nr_hugepages", "nr_overcommit_hugepages"] {
        read(&Path::new("/proc/sys/vm").join(name), &mut found);
    }
    found.sort();
    found
}

fn collect(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, found) } else { read(&path, found) }
    }
}

/// Reads a file unless it is a counter, because a counter is no setting.
fn read(path: &Path, found: &mut Vec<(PathBuf, String)>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let counts = ["pages_collapsed", "full_scans", "free_hugepages", "resv_hugepages", "surplus_hugepages"];
    let is_statistic = path.parent().is_some_and(|parent| parent.ends_with("stats"));
    if !counts.contains(&name.as_ref())
        && !is_statistic
        && let Ok(value) = fs::read_to_string(path)
    {
        found.push((path.to_path_buf(), value));
    }
}
