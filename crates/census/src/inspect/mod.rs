//! An [`Inspector`] inspects processes: their regions, how these are mapped, and why pages are not larger.
//!
//! Data is read mapping by mapping and only sums are kept, so the memory use does not grow with the process. Nothing is changed.
//! A running process changes in the meantime: it is inspected again if it has executed another program, and other changes are
//! reported in [`Inspection::partial`].

mod batches;
mod capture;
mod captured_pages;
mod collapse;
mod contents;
mod elf;
mod error;
mod identity;
mod inspect_once;
pub mod jemalloc;
mod live;
pub mod load_segments;
mod pid_fd;
mod second_stage;
mod stacks;
mod status;
mod subject;
pub mod which;

use std::io;
use std::sync::Arc;

use host::Host;
use policy::PageSizes;
use policy::inspect::{Collapsed, Inspection, Region, Since, Supply};
use policy::size::PageSize;

use crate::{CensusError, Observer};
use capture::Captured;
pub use capture::{CapturedFile, Content};
pub use error::InspectError;
use identity::Identity;
pub use identity::faults;
use live::Live;
pub use live::environment_of;
use pid_fd::PidFd;
use subject::Sizes;

/// Optional parts of an inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Whether to record the content of each window of PMD size ([`policy::inspect::Region::windows`]).
    pub windows: bool,
    /// Whether to report page sizes only, without smaps: for each page mapped by a base-page PTE, the kernel takes about four
    /// times as long for smaps as for PAGEMAP_SCAN. Without effect where smaps is the only source.
    pub sizes_only: bool,
    /// Whether only the memory and its causes are wanted, as for totals of many processes: the files of the program and the second
    /// stage of its guests are not read.
    pub memory_only: bool,
    /// Whether to search the program and its libraries for jemalloc, for which their constants (`.rodata`) are read.
    pub jemalloc: bool,
    /// Whether to read the memory of large pages, and count the base pages in them that hold only zeros.
    pub contents: bool,
}

/// How often a process is inspected at most if it executes another program each time.
const MAX_ATTEMPTS: usize = 3;

/// Inspects processes of the running kernel.
pub struct Inspector {
    host: Host,
    observer: Observer,
    sizes: Sizes,
    detail: Detail,
}

impl Inspector {
    /// An inspector that uses `observer`, whose privileges decide what is visible.
    pub fn new(host: Host, observer: Observer, detail: Detail) -> Inspector {
        let sizes = sizes_of(host.page_sizes());
        Inspector { host, observer, sizes, detail }
    }

    /// The sizes of the kernel.
    pub fn page_sizes(&self) -> &PageSizes {
        self.host.page_sizes()
    }

    /// What the kernel could currently allocate. It is the same for all processes of one inspection run.
    pub fn supply(&self) -> Result<Supply, InspectError> {
        let state = self.host.state()?;
        let counters = self.host.counters()?;
        Ok(Supply {
            base_bytes: self.sizes.base.bytes(),
            free_blocks_by_order: state.free_blocks_by_order,
            available_bytes: state.available_bytes,
            settings: Arc::unwrap_or_clone(state.settings),
            pools: self.host.pools()?,
            counters: counters.iter().map(|(name, value)| (name.to_string(), value)).collect(),
            counted_since: Since::Boot,
            leaseholder: if self.host.is_live() { host::leaseholder() } else { None },
            changed_settings: if self.host.is_live() { host::changed_settings() } else { Vec::new() },
        })
    }

    pub fn process(&self, pid: u32, supply: &Supply) -> Result<Inspection, InspectError> {
        let mut attempts = 0;
        if !self.host.is_live() {
            return self.captured(pid, supply);
        }
        loop {
            attempts += 1;
            // Two processes can have the same PID and start in the same clock tick, so start times alone do not distinguish them.
            let held = open_pidfd(pid)?;
            let before = Identity::of(pid)?;
            let inspected = Live::open(&self.observer, &self.sizes, pid)
                .map_err(InspectError::from)
                .and_then(|subject| inspect_once::inspect_once(&subject, &before, supply, self.detail));
            let has_ended = held.as_ref().is_some_and(PidFd::has_ended);
            let now = Identity::of(pid);
            // If the process ended, some of the files may have been those of another process with the same PID.
            if now.as_ref().is_ok_and(|after| has_ended || after.started_ticks != before.started_ticks) {
                return Err(InspectError::Replaced { pid });
            }
            let mut inspection = inspected?;
            match now {
                Ok(after) if !before.is_same_program(&after) && attempts < MAX_ATTEMPTS => continue,
                Ok(after) if !before.is_same_program(&after) => {
                    inspection.partial.push("it executed other programs meanwhile, again and again".into());
                }
                Ok(_) => {}
                Err(InspectError::NoSuchProcess { .. } | InspectError::Zombie { .. }) => {
                    inspection.partial.push("it ended meanwhile: what was read last may be missing".into());
                }
                Err(error) => inspection.partial.push(format!("whether it ended meanwhile is not known: {error}")),
            }
            return Ok(inspection);
        }
    }

    fn captured(&self, pid: u32, supply: &Supply) -> Result<Inspection, InspectError> {
        let subject = Captured::open(&self.host, self.sizes.clone(), pid)?;
        let (root, path) = (self.host.root(), format!("/proc/{pid}/stat"));
        let stat = root.text(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => InspectError::NotCaptured { pid, root: root.path().into() },
            _ => root.unreadable(&path, error).into(),
        })?;
        let inspection = inspect_once::inspect_once(&subject, &Identity::parse(pid, &stat)?, supply, self.detail)?;
        root.verify()?;
        Ok(inspection)
    }

    /// The size of a PMD leaf; `None` where the kernel has no THP.
    pub fn pmd_leaf(&self) -> Option<PageSize> {
        self.sizes.pmd
    }

    /// Asks the kernel to collapse memory of a process that could be larger, region by region. This changes the process
    /// permanently.
    pub fn collapse(&self, inspected: &Inspection) -> Result<Vec<Collapsed>, InspectError> {
        let Some(leaf) = self.sizes.pmd else { return Ok(Vec::new()) };
        let could = |region: &&Region| region.benefit.bytes > 0 && region.target == Some(leaf);
        let regions: Vec<&Region> = inspected.regions.iter().filter(could).collect();
        collapse::collapse(inspected.process.pid, inspected.process.started_ticks, &regions, leaf)
    }

    /// Captures a process of the running kernel and the facts about the system, as files to write below a directory. An inspector
    /// of that directory reports the same as one of the process. Memory contents are not included.
    pub fn capture(&self, pid: u32) -> Result<Vec<CapturedFile>, InspectError> {
        Identity::of(pid)?;
        let subject = Live::open(&self.observer, &self.sizes, pid)?;
        let vmas = inspect_once::mappings(&subject, pid)?;
        let mut files = capture::system(&self.host)?;
        files.extend(capture::process(&subject, &vmas)?);
        Ok(files)
    }
}

/// A pidfd of the process or thread. `None` before Linux 5.3, for threads before Linux 6.9, and if it has ended: reading its
/// identity reports that.
fn open_pidfd(pid: u32) -> Result<Option<PidFd>, CensusError> {
    match PidFd::open(pid) {
        Ok(held) => Ok(Some(held)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOSYS | libc::EINVAL)) => Ok(None),
        Err(error) => Err(CensusError::Io { path: format!("pidfd_open({pid})"), error }),
    }
}

/// The page sizes that regions are compared with.
fn sizes_of(page_sizes: &PageSizes) -> Sizes {
    let transparent = page_sizes.mthp.iter().copied().chain(page_sizes.pmd).collect();
    Sizes { base: page_sizes.base, pmd: page_sizes.pmd, transparent, hugetlb: page_sizes.hugetlb.clone() }
}
