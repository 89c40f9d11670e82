//! Tries combinations of memory, way and size ([`Bench`]): for one size after the other, under the settings that the
//! size needs.

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use census::Observer;
use host::{Host, KHUGEPAGED, THP};
use lease::{Lease, Written};
use platform::KhugepagedHold;
use policy::capability::{Cell, Kind, Outcome, SettingsMode, Way};
use policy::cause::Cause;
use policy::size::PageSize;
use tempfile::TempDir;
use tracer::signals;

use super::settings::{self, Settings};
use super::subjects::Subject;
use super::trial::{Combination, start};
use super::why;
use crate::failure::Failure;
use crate::progress_line::ProgressLine;

/// How often a swap-in that gives base pages is tried. The kernel reads a large folio back as one folio only if its swap slots
/// are contiguous, which depends on what else was swapped (Linux 6.12, `alloc_swap_folio` in mm/memory.c).
const SWAP_TRIES: u32 = 4;

/// After this number of full scans, khugepaged has seen all memory: the first scan may have begun before the memory
/// existed. A scan takes milliseconds if khugepaged does not sleep in it.
const SCANS: u64 = 2;
const SCAN_TIMEOUT: Duration = Duration::from_secs(20);
const SCAN_POLL: Duration = Duration::from_millis(10);

/// What all trials use, and the leased settings.
pub struct Bench {
    pub host: Host,
    pub observer: Observer,
    pub mode: SettingsMode,
    /// `None` without root: no setting is changed.
    pub leased: Option<(Lease, KhugepagedHold)>,
    pub deadline: Option<Instant>,
    /// The settings that the current size needs.
    pub wanted: Settings,
}

/// The files that trials map; removed on drop.
struct Files(Vec<TempDir>);

impl Bench {
    /// The size of a PMD leaf; the base page size if the kernel has no THP.
    fn pmd(&self) -> PageSize {
        let sizes = self.host.page_sizes();
        sizes.pmd.unwrap_or(sizes.base)
    }

    /// The folio sizes of the kernel up to the PMD size.
    pub fn folio_sizes(&self) -> Result<Vec<PageSize>, Failure> {
        let mut found = Vec::new();
        let mut bytes = self.host.page_sizes().base.bytes() * 2;
        while let Some(size) = PageSize::new(bytes).ok().filter(|size| *size <= self.pmd()) {
            let directory = format!("{THP}/hugepages-{}kB", bytes >> 10);
            let is_pmd = self.host.page_sizes().pmd == Some(size);
            if is_pmd || self.host.has(&directory).map_err(Failure::input)? {
                found.push(size);
            }
            bytes *= 2;
        }
        Ok(found)
    }

    /// Tries all combinations of a size; returns their cells.
    pub fn try_size(
        &mut self,
        size: PageSize,
        subjects: &[Subject],
        ways: &[Way],
        progress: &ProgressLine,
    ) -> Result<Vec<Cell>, Failure> {
        let folio_sizes = self.folio_sizes()?;
        self.rest()?;
        self.wanted = self.wanted(size, subjects, &folio_sizes)?;
        let is_granted = self.apply()?;
        let mut cells = Vec::new();
        for subject in subjects {
            let kind = subject.memory.kind;
            for way in ways {
                let tried = Combination { subject, way: *way, size };
                progress.set(&format!("{size}: {} by {}", subject.memory.label(), way.word()));
                let (outcome, is_short) = match self.lacking(&tried, &folio_sizes)? {
                    Some(reason) => (Outcome::NotAvailable { reason }, false),
                    None if self.is_late() => {
                        (Outcome::Unknown { reason: "--max-time ended before".to_owned() }, false)
                    }
                    None => self.try_repeatedly(&tried)?,
                };
                let is_short = is_short || kind == Kind::Hugetlb && !is_granted && !is_large(&outcome);
                let memory = subject.memory.clone();
                cells.push(Cell { memory, way: *way, size, depends_on_free_memory: is_short, outcome });
                if signals::arrived().is_some() {
                    return Err(Failure::Stopped(signals::arrived().unwrap_or(0), "settings are restored"));
                }
            }
        }
        Ok(cells)
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn wanted(&self, size: PageSize, subjects: &[Subject], folio_sizes: &[PageSize]) -> Result<Settings, Failure> {
        if self.mode == SettingsMode::Found {
            return Ok(Settings::new());
        }
        let mut wanted = settings::enabling_only(&self.host, size, folio_sizes).map_err(Failure::input)?;
        if subjects.iter().any(|subject| subject.memory.kind == Kind::Hugetlb) {
            // One page for the memory, and one for its copy after a fork.
            wanted.extend(settings::pool(&self.host, size, 2).map_err(Failure::input)?);
        }
        Ok(wanted)
    }

    /// Restores every setting, with khugepaged asleep, because the settings for the next size are derived from the
    /// original ones.
    fn rest(&mut self) -> Result<(), Failure> {
        self.wanted.clear();
        self.apply().map(drop)
    }

    /// Applies the wanted settings, with khugepaged asleep. Returns whether every pool has the requested pages.
    fn apply(&mut self) -> Result<bool, Failure> {
        let Some((lease, khugepaged)) = &mut self.leased else { return Ok(true) };
        let pairs = self.wanted.iter().map(|(path, value)| (path.as_str(), value.as_str()));
        let written = lease.apply(khugepaged.pairs().chain(pairs)).map_err(Failure::input)?;
        khugepaged.settle().map_err(Failure::input)?;
        Ok(written.iter().all(|written| *written == Written::InFull))
    }

    /// Why a combination cannot be tried; `None` if it can.
    fn lacking(&self, tried: &Combination, folio_sizes: &[PageSize]) -> Result<Option<String>, Failure> {
        let (kind, way, size) = (tried.kind(), tried.way, tried.size);
        let is_pool = kind == Kind::Hugetlb;
        if is_pool != self.host.page_sizes().hugetlb.contains(&size) && (is_pool || !folio_sizes.contains(&size)) {
            let what = if is_pool { "no hugetlb pool of this size" } else { "only hugetlb pools have this size" };
            return Ok(Some(what.to_owned()));
        }
        let (path, has) = settings::size_setting(&self.host, kind, size).map_err(Failure::input)?;
        let is_pmd = self.host.page_sizes().pmd == Some(size);
        Ok(match way {
            _ if kind.has_mount() && tried.subject.directory.is_none() => Some(no_mount(kind).to_owned()),
            _ if !has && !is_pmd && !kind.is_file() && !is_pool => Some(format!("this kernel has no {path}")),
            Way::SwapIn if kind.is_file() || is_pool => Some("this memory is not swapped".to_owned()),
            Way::SwapIn if !self.has_swap()? => Some("no swap is in use".to_owned()),
            Way::Zeros | Way::Mprotect if kind.is_file() => Some("the file is mapped read-only".to_owned()),
            Way::Khugepaged | Way::Collapse if is_pool => Some("hugetlb pages are not collapsed".to_owned()),
            Way::Khugepaged if self.leased.is_none() => Some("khugepaged must be woken, which needs root".to_owned()),
            _ => None,
        })
    }

    fn has_swap(&self) -> Result<bool, Failure> {
        let swaps = self.host.value("/proc/swaps").map_err(Failure::input)?;
        Ok(swaps.is_some_and(|swaps| swaps.lines().count() > 1))
    }

    /// Tries a combination, repeatedly if an allocation failed or if the result depends on chance. Returns whether the last trial
    /// still lacked free memory.
    fn try_repeatedly(&mut self, tried: &Combination) -> Result<(Outcome, bool), Failure> {
        let (mut outcome, mut shortage) = self.try_once(tried)?;
        let tries = if tried.way == Way::SwapIn { SWAP_TRIES } else { 1 };
        for _ in 1..tries {
            if is_large(&outcome) {
                break;
            }
            (outcome, shortage) = self.try_once(tried)?;
        }
        if shortage.is_none() || is_large(&outcome) {
            return Ok((self.with_setting(tried, outcome)?, false));
        }
        let (outcome, shortage) = self.try_once(tried)?;
        let is_short = shortage.is_some() && !is_large(&outcome);
        Ok((outcome, is_short))
    }

    /// Tries a combination once. Also returns the cause if a counter of failed allocations increased meanwhile.
    fn try_once(&mut self, tried: &Combination) -> Result<(Outcome, Option<Cause>), Failure> {
        let mut files = Files(Vec::new());
        let before = self.host.counters().map_err(Failure::input)?;
        let file = files.of(tried.subject, tried.length_bytes(self.pmd()))?;
        let mut running = start(tried, self.pmd(), file).map_err(Failure::input)?;
        if tried.way == Way::Khugepaged {
            self.let_khugepaged_scan()?;
            self.apply()?;
            running.read_again().map_err(Failure::input)?;
        }
        let after = self.host.counters().map_err(Failure::input)?;
        let shortage = why::shortage(tried, &before, &after);
        let cause = match &shortage {
            Some(cause) => cause.clone(),
            None => why::expected(tried),
        };
        let outcome = running.examine(tried, self.pmd(), &self.observer, cause);
        Ok((outcome, shortage))
    }

    /// If the combination was refused under the settings as found: names the setting that switches the size off. With root rights the
    /// setting is tried, and named only if the memory then gets the size.
    fn with_setting(&mut self, tried: &Combination, outcome: Outcome) -> Result<Outcome, Failure> {
        let Outcome::Refused { refusal, large_ratio, .. } = &outcome else { return Ok(outcome) };
        let is_found = self.mode == SettingsMode::Found;
        let Some((cause, mut setting)) = why::disabled(&self.host, tried)?.filter(|_| is_found) else {
            return Ok(outcome);
        };
        let (refusal, large_ratio) = (refusal.clone(), *large_ratio);
        let helps = if self.leased.is_some() {
            self.wanted.push((setting.path.clone(), setting.value.clone()));
            self.apply()?;
            let (with_setting, _) = self.try_once(tried)?;
            self.rest()?;
            setting.tried = true;
            matches!(with_setting, Outcome::Large { .. } | Outcome::FolioOnly { .. })
        } else {
            matches!(tried.way, Way::Touch | Way::Populate)
        };
        Ok(if helps { Outcome::Refused { cause, refusal, setting: Some(setting), large_ratio } } else { outcome })
    }

    /// Lets khugepaged scan all memory, and waits until it has. If khugepaged does not run, this returns at once.
    fn let_khugepaged_scan(&mut self) -> Result<(), Failure> {
        let Some((lease, _)) = &mut self.leased else { return Ok(()) };
        let scans = || self.host.number(&format!("{KHUGEPAGED}/full_scans")).map_err(Failure::input);
        let (begun, first) = (Instant::now(), scans()?);
        for (path, value) in settings::scanning(&self.host).map_err(Failure::input)? {
            lease.set(&path, &value).map_err(Failure::input)?;
        }
        if !is_khugepaged_wanted(&self.host)? {
            return Ok(());
        }
        while scans()?.zip(first).is_some_and(|(now, first)| now < first + SCANS) && begun.elapsed() < SCAN_TIMEOUT {
            std::thread::sleep(SCAN_POLL);
        }
        Ok(())
    }
}

/// Whether khugepaged runs: since Linux 6.8 if any setting enables the PMD size, before that if the global setting does.
fn is_khugepaged_wanted(host: &Host) -> Result<bool, Failure> {
    let Some(pmd) = host.page_sizes().pmd else { return Ok(false) };
    let own = format!("{THP}/hugepages-{}kB", pmd.bytes() >> 10);
    for path in [format!("{THP}/enabled"), format!("{own}/enabled"), format!("{own}/shmem_enabled")] {
        let value = host.value(&path).map_err(Failure::input)?;
        let word = value.as_deref().map(host::chosen_word);
        if word.is_some_and(|word| !matches!(word, "never" | "inherit")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why a kind of memory that needs a file has no directory.
fn no_mount(kind: Kind) -> &'static str {
    if kind == Kind::Tmpfs {
        "no tmpfs is mounted on /dev/shm"
    } else {
        "the directories of temporary files are in memory; --directory names another"
    }
}

fn is_large(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Large { .. })
}

impl Files {
    /// A new file for the subject's memory, opened as the probe needs it; `None` for memory without a file.
    #[expect(clippy::disallowed_methods, reason = "no other user can change the temporary directory")]
    fn of(&mut self, subject: &Subject, bytes: u64) -> Result<Option<File>, Failure> {
        let Some(parent) = &subject.directory else { return Ok(None) };
        let kind = subject.memory.kind;
        let made = results::files::temporary_directory(parent, "pagelab-capabilities");
        let made = made.map_err(|error| Failure::about(parent, error))?;
        let path = made.path().join("memory");
        let content = vec![1; if kind.is_file() { bytes as usize } else { 0 }];
        results::files::write(&path, &content).map_err(Failure::input)?;
        let file = OpenOptions::new().read(true).write(!kind.is_file()).open(&path);
        let file = file.map_err(|error| Failure::about(&path, error))?;
        if !kind.is_file() {
            file.set_len(bytes).map_err(|error| Failure::about(&path, error))?;
        }
        self.0.push(made);
        Ok(Some(file))
    }
}
