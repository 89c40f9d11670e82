//! [`KhugepagedHold`]: keeps khugepaged asleep while something is measured.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::admit::{self, Setting, Terms};
use host::{Host, if_exists};
use lease::Lease;
use policy::Unsupported;
use tracer::signals;

use super::error::PlatformError;
use super::registrable::Registrable;

/// How long khugepaged may take to fall asleep.
const SLEEP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often khugepaged's state is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The PID of kthreadd, the parent of kernel threads.
const KTHREADD: &str = "2";

/// Keeps khugepaged asleep for as long as pagelab holds the lease on the settings that make it sleep.
///
/// khugepaged wakes up when a process registers for THP while none is registered (`__khugepaged_enter`, mm/khugepaged.c). So this
/// process registers first, by advising some memory.
pub struct KhugepagedHold {
    stages: Vec<Vec<Setting>>,
    /// Absent where the kernel has no THP.
    advised: Option<Registrable>,
}

impl KhugepagedHold {
    /// Determines the settings to change, and maps the memory to advise. Changes no setting yet.
    pub fn of(host: &Host, terms: &Terms) -> Result<KhugepagedHold, Unsupported> {
        let stages = admit::khugepaged_settings(host, terms)?;
        if is_thp_disabled() {
            return Err(Unsupported {
                reason:
                    "pagelab itself runs with THP disabled (PR_SET_THP_DISABLE), so it cannot keep khugepaged asleep"
                        .into(),
                remedy: "start it by itself, and not by a program that disables THP for what it starts".into(),
            });
        }
        let page_sizes = host.page_sizes();
        let advised = page_sizes.pmd.map(|pmd| {
            Registrable::map(pmd, page_sizes.base).map_err(|error| Unsupported {
                reason: format!("{pmd} of memory cannot be mapped: {error}"),
                remedy: "a higher `ulimit -v`".into(),
            })
        });
        Ok(KhugepagedHold { stages, advised: advised.transpose()? })
    }

    /// The settings that stay in force while khugepaged sleeps, as path and value for [`Lease::apply`].
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stages.last().map(Vec::as_slice).into_iter().flat_map(pairs)
    }

    /// Lets khugepaged sleep, and waits until it does.
    pub fn begin(&self, lease: &mut Lease) -> Result<(), PlatformError> {
        for stage in &self.stages {
            lease.apply(pairs(stage))?;
            self.settle()?;
        }
        Ok(())
    }

    /// Advises the memory again and waits until khugepaged sleeps. To be called after settings were written, because khugepaged scans
    /// if they enabled a size.
    pub fn settle(&self) -> Result<(), PlatformError> {
        self.ask_for_thp();
        let Some(thread) = khugepaged_thread(Path::new("/proc"))? else { return Ok(()) };
        let begun = Instant::now();
        while is_at_work(&thread)? {
            if signals::arrived().is_some() {
                return Err(PlatformError::Interrupted);
            }
            if begun.elapsed() > SLEEP_TIMEOUT {
                return Err(PlatformError::KhugepagedBusy { patience_s: SLEEP_TIMEOUT.as_secs_f64() });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Advises the memory with MADV_HUGEPAGE. If no size is enabled, that fails or does nothing, and khugepaged has no work.
    fn ask_for_thp(&self) {
        if let Some(advised) = &self.advised {
            advised.ask_for_huge_pages();
        }
    }
}

fn pairs(settings: &[Setting]) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|setting| (setting.path.as_str(), setting.value.as_str()))
}

/// Whether THP is disabled for this process even in memory advised with MADV_HUGEPAGE (prctl(2), PR_GET_THP_DISABLE).
fn is_thp_disabled() -> bool {
    // SAFETY: the request takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
}

/// Whether a thread is in any state but S. There is no race with a wakeup: when the system call that wakes the thread returns, the
/// kernel has already made it runnable. A thread that no longer exists is not working.
fn is_at_work(thread: &Path) -> io::Result<bool> {
    let Some(stat) = if_exists(host::content(thread.join("stat")))? else { return Ok(false) };
    let state = stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with('S'));
    state.ok_or_else(|| io::Error::other(format!("{}: expected a state, found {stat:?}", thread.display())))
}

/// The directory of khugepaged in /proc; `None` if there is none: the kernel runs it only while PMD-sized
/// THP is enabled.
fn khugepaged_thread(proc: &Path) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(proc)? {
        let path = entry?.path();
        let is_number = path.file_name().is_some_and(|name| name.as_bytes().iter().all(u8::is_ascii_digit));
        let stat = if is_number { if_exists(host::content(path.join("stat")))? } else { None };
        // Another process may have khugepaged's name, but only threads and helpers of the kernel have kthreadd as parent.
        let is_khugepaged = stat
            .as_deref()
            .and_then(|stat| stat.rsplit_once(") "))
            .is_some_and(|(name, rest)| name.ends_with("(khugepaged") && rest.split(' ').nth(1) == Some(KTHREADD));
        if is_khugepaged {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(files: &[(&str, &str)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (process, stat) in files {
            std::fs::create_dir_all(proc.path().join(process)).unwrap();
            std::fs::write(proc.path().join(process).join("stat"), stat).unwrap();
        }
        proc
    }

    #[test]
    fn khugepaged_is_the_kernels_own_thread_and_at_work_where_it_does_not_sleep() {
        let proc = processes(&[
            ("7", "7 (khugepaged) R 1 0"),
            ("9", "9 (khugepaged) S 2 0"),
            ("11", "11 (a) b) S 2 0"),
            ("sys", "x"),
        ]);
        let found = khugepaged_thread(proc.path()).unwrap().unwrap();
        assert_eq!(found, proc.path().join("9"));
        assert!(!is_at_work(&found).unwrap() && is_at_work(&proc.path().join("7")).unwrap());
        assert!(!is_at_work(&proc.path().join("13")).unwrap(), "it has gone");
    }

    #[test]
    fn a_thread_that_cannot_be_read_does_not_sleep() {
        let proc = processes(&[("7", "rubbish")]);
        assert!(is_at_work(&proc.path().join("7")).is_err());
        std::fs::remove_file(proc.path().join("7/stat")).unwrap();
        std::fs::create_dir(proc.path().join("7/stat")).unwrap();
        assert!(is_at_work(&proc.path().join("7")).is_err() && khugepaged_thread(proc.path()).is_err());
        assert!(khugepaged_thread(Path::new("/nonexistent")).is_err());
    }
}
