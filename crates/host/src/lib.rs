//! What the host is and how it stands: its page sizes, its settings, its counters.
//!
//! Everything is read from a root directory: `/` on a running host, or a tree of files captured from
//! /proc and /sys of another one. A captured tree answers the same questions, apart from those that
//! only a running kernel can answer ([`Host::is_live`]).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod absence;
pub mod absent;
pub mod activity;
pub mod admit;
mod counters;
pub mod direct_map;
mod kernel;
mod leaseholder;
mod machine;
pub mod maps;
mod outer_tracer;
mod page_sizes;
mod processes;
mod processor;
pub mod read;
mod reporting;
mod root;
mod settings;
mod state;
mod tlbs;

use std::io;
use std::path::PathBuf;

use policy::PageSizes;
use policy::size::PageSize;
use study::machine::{Machine, State};

pub use absence::if_there;
pub use activity::Activity;
pub use counters::{COLLAPSE_ALLOCATIONS, COLLAPSED, COMPACTED, COMPACTIONS, Counters, FALLBACKS};
pub use kernel::{KernelVersion, Mount, PtraceLimit};
pub use leaseholder::{LEASE_DIRECTORY, leaseholder};
pub use outer_tracer::{outer_tracer, tracer_of};
pub use policy::judge::{THP, thp_size_enabled};
pub use processes::{ProcessStat, task_state};
pub use processor::Processor;
pub use read::{HostError, chosen_word, content};
pub use root::{MAX_STREAM_BYTES, MAX_TEXT_BYTES, Root};
pub use settings::IDLE_LATENCY;
pub use tlbs::ToldTlb;

/// Where khugepaged is controlled (the same document).
pub const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";
/// Where the hugetlb pools are (Documentation/admin-guide/mm/hugetlbpage.rst).
pub const HUGETLB: &str = "/sys/kernel/mm/hugepages";

/// A host, running or captured.
#[derive(Clone, Debug)]
pub struct Host {
    root: Root,
    page_sizes: PageSizes,
    settings: Vec<settings::Setting>,
    counters: Vec<counters::CounterFile>,
}

impl Host {
    /// The host whose /proc and /sys lie under `root`: `/`, or a captured tree.
    ///
    /// The page sizes and the names of the settings are read once, here; their values at each
    /// [`Host::state`].
    ///
    /// # Errors
    /// The base page size is not known, or a file cannot be read or is not understood.
    pub fn open(root: impl Into<PathBuf>) -> Result<Host, HostError> {
        let root = Root::open(root)?;
        let page_sizes = page_sizes::read(&root)?;
        let settings = settings::list(&root)?;
        let counters = counters::list(&root)?;
        root.verify()?;
        Ok(Host { root, page_sizes, settings, counters })
    }

    /// The directory that stands for `/`.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether this is the kernel that this process runs on.
    pub fn is_live(&self) -> bool {
        self.root.is_live()
    }

    /// The page sizes that the kernel offers.
    pub fn page_sizes(&self) -> &PageSizes {
        &self.page_sizes
    }

    /// The machine, as far as it does not change.
    ///
    /// # Errors
    /// A file that every kernel has cannot be read (`/proc/meminfo`, the release, the boot id).
    pub fn machine(&self) -> Result<Machine, HostError> {
        self.verified(machine::read(self)?)
    }

    /// The processor as machine files name it, and what it tells of how it translates. What it does not tell is absent.
    ///
    /// # Errors
    /// /proc/cpuinfo cannot be read.
    pub fn processor(&self) -> Result<Processor, HostError> {
        processor::read(&self.root)
    }

    /// The settings and the memory as they are now. Takes well under 2 ms, so that it can be called
    /// around every trial. A setting that is there and cannot be read has the value `unknown: ` and why.
    ///
    /// # Errors
    /// `/proc/meminfo`, `/proc/buddyinfo`, `/proc/loadavg` or what tells of page reporting cannot be read.
    pub fn state(&self) -> Result<State, HostError> {
        self.verified(state::read(self)?)
    }

    /// Memory that new programs can have now (`MemAvailable`).
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read, or does not say.
    pub fn available_bytes(&self) -> Result<u64, HostError> {
        state::available_bytes(self)
    }

    /// The kernel's event counters as they are now.
    ///
    /// # Errors
    /// `/proc/vmstat` or the file of a counter cannot be read.
    pub fn counters(&self) -> Result<Counters, HostError> {
        self.verified(counters::read(self)?)
    }

    /// What the kernel does about page sizes, as it is counted now: for a live view.
    ///
    /// # Errors
    /// `/proc/vmstat`, `/proc/meminfo`, `/proc/buddyinfo` or a counter cannot be read.
    pub fn activity(&self) -> Result<Activity, HostError> {
        self.verified(activity::read(self)?)
    }

    /// The processes that have memory, in no order: one small file a process is read.
    ///
    /// # Errors
    /// `/proc` cannot be listed, or the file of a process cannot be read although it is visible.
    pub fn processes(&self) -> Result<Vec<ProcessStat>, HostError> {
        processes::list(self)
    }

    /// The value of a setting (the chosen word of a file with choices); `None` where there is no such file.
    ///
    /// # Errors
    /// It is there, and cannot be read.
    pub fn value(&self, path: &str) -> Result<Option<String>, HostError> {
        Ok(absent::text(&self.root, path)?.map(|text| chosen_word(&text).to_string()))
    }

    /// Whether there is such a file.
    ///
    /// # Errors
    /// It is not known.
    pub fn has(&self, path: &str) -> Result<bool, HostError> {
        absent::exists(&self.root, path)
    }

    /// What was read, unless a file of a captured tree was refused meanwhile.
    fn verified<T>(&self, read: T) -> Result<T, HostError> {
        self.root.verify().map(|()| read)
    }

    /// Every file that a host is read from, as paths on the running host: what a capture of it needs beside the head of
    /// `/proc/self/smaps`, which says the base page.
    pub fn files(&self) -> Vec<String> {
        const FIXED: [&str; 6] = [
            "/proc/meminfo",
            "/proc/buddyinfo",
            "/proc/loadavg",
            "/proc/vmstat",
            "/proc/sys/kernel/osrelease",
            "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
        ];
        const OF_POOL: [&str; 3] = ["free_hugepages", "resv_hugepages", "surplus_hugepages"];
        let settings = self.settings.iter().map(|setting| setting.path().to_string());
        let counters = self.counters.iter().map(|counter| counter.path().to_string());
        let sizes = &self.page_sizes.hugetlb;
        let pools = sizes.iter().flat_map(|size| OF_POOL.map(|file| hugetlb_file(*size, file)));
        FIXED.map(String::from).into_iter().chain(settings).chain(counters).chain(pools).collect()
    }

    /// A number in a file of its own; `None` where there is no such file.
    ///
    /// # Errors
    /// It is there, and cannot be read or holds no number.
    pub fn number(&self, path: &str) -> Result<Option<u64>, HostError> {
        let number =
            |found: String| found.parse().map_err(|_| absent::unexpected(&self.root, path, "a number", &found));
        self.value(path)?.map(number).transpose()
    }

    /// The same of a file that must be there.
    ///
    /// # Errors
    /// It is not there, cannot be read or holds no number.
    pub fn required_number(&self, path: &str) -> Result<u64, HostError> {
        self.number(path)?.ok_or_else(|| absent::unreadable(&self.root, path, io::ErrorKind::NotFound.into()))
    }
}

/// A file of the hugetlb pool of `size`.
pub fn hugetlb_file(size: PageSize, file: &str) -> String {
    format!("{HUGETLB}/hugepages-{}kB/{file}", size.bytes() >> 10)
}
