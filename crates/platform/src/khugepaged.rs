//! khugepaged held still while something is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::Host;
use host::admit::{self, Setting, Terms};
use lease::Lease;
use study::comparison::Unsupported;
use tracer::signals;

use super::error::PlatformError;
use super::registrable::Registrable;

/// How long a scan may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether it is over.
const INTERVAL: Duration = Duration::from_millis(1);
/// The number of the parent of the kernel's threads.
const KTHREADD: &str = "2";

/// khugepaged asleep, as long as the settings are leased that let it sleep.
///
/// It would wake up for the first process that asks for THP after there was none (`__khugepaged_enter`, mm/khugepaged.c). So
/// this process asks first: it has memory that is advised.
pub struct Stillness {
    stages: Vec<Vec<Setting>>,
    /// Absent where the kernel has no THP.
    advised: Option<Registrable>,
}

impl Stillness {
    /// What it takes on a host; nothing is changed yet.
    ///
    /// # Errors
    /// It cannot be had here; why, and how to get it.
    pub fn of(host: &Host, terms: &Terms) -> Result<Stillness, Unsupported> {
        let stages = admit::still(host, terms)?;
        if is_thp_disabled() {
            return Err(Unsupported {
                reason: "pagelab itself runs with THP disabled (PR_SET_THP_DISABLE), so it cannot hold khugepaged"
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
        Ok(Stillness { stages, advised: advised.transpose()? })
    }

    /// The settings that hold meanwhile, as [`Lease::apply`] takes them.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stages.last().map(Vec::as_slice).into_iter().flat_map(pairs)
    }

    /// Lets khugepaged sleep, and waits until it does.
    ///
    /// # Errors
    /// The kernel does not take a value; it does not come to rest.
    pub fn begin(&self, lease: &mut Lease) -> Result<(), PlatformError> {
        for stage in &self.stages {
            lease.apply(pairs(stage))?;
            self.settle()?;
        }
        Ok(())
    }

    /// Waits until khugepaged sleeps, after settings were written: it scans where that switched a size on.
    ///
    /// # Errors
    /// It does not come to rest, pagelab was told to stop.
    pub fn settle(&self) -> Result<(), PlatformError> {
        self.ask_for_thp();
        let Some(thread) = thread() else { return Ok(()) };
        let begun = Instant::now();
        while is_at_work(&thread) {
            if signals::arrived().is_some() {
                return Err(PlatformError::Interrupted);
            }
            if begun.elapsed() > PATIENCE {
                return Err(PlatformError::Restless { patience_s: PATIENCE.as_secs_f64() });
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Where no size is switched on now, that is refused or without effect, and khugepaged has nothing to do.
    fn ask_for_thp(&self) {
        if let Some(advised) = &self.advised {
            advised.ask_for_huge_pages();
        }
    }
}

fn pairs(settings: &[Setting]) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().map(|setting| (setting.path.as_str(), setting.value.as_str()))
}

/// Whether THP is off for this process, advised memory included (prctl(2), PR_GET_THP_DISABLE).
fn is_thp_disabled() -> bool {
    // SAFETY: the request takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
}

/// Whether a thread does something else than waiting. One that is woken up is seen to be: the kernel makes it runnable before
/// it returns from what wakes it up.
fn is_at_work(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('S'))
}

/// The directory of khugepaged in /proc; there is none while no size of a PMD leaf is switched on.
fn thread() -> Option<PathBuf> {
    let is_khugepaged = |path: &PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        // Others may take on its name, but not its parent.
        stat.rsplit_once(") ")
            .is_some_and(|(name, rest)| name.ends_with("(khugepaged") && rest.split(' ').nth(1) == Some(KTHREADD))
    };
    std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()).find(is_khugepaged)
}
