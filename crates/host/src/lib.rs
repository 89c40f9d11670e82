//! Reads a [`Host`]: its page sizes, settings and counters.
//!
//! Everything is read from a root directory: `/` on a running host, or a tree of files captured from /proc and /sys of
//! another host. A captured tree gives the same answers, apart from those that only a running kernel can give
//! ([`Host::is_live`]).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod absence;
pub mod absent;
pub mod activity;
pub mod admit;
mod autogroups;
mod charges;
mod control_groups;
mod counters;
pub mod direct_map;
mod hugetlb_groups;
mod kernel;
pub mod kvm_statistics;
mod leaseholder;
mod machine;
pub mod maps;
mod memory_groups;
mod outer_tracer;
mod page_sizes;
mod perf;
mod pools;
mod processes;
mod processor;
mod processor_times;
pub mod read;
mod regular_file;
mod reporting;
mod root;
mod settings;
mod state;
mod tlbs;

use std::io;
use std::path::PathBuf;

use policy::PageSizes;
use policy::hugetlb::HugetlbLimits;
use policy::machine::{Machine, State};
use policy::size::PageSize;

pub use absence::if_exists;
pub use activity::Activity;
pub use autogroups::Autogroups;
pub use charges::{charges, memory_group};
pub use counters::{COLLAPSE_ALLOCATIONS, COLLAPSED, COMPACTED, COMPACTIONS, Counters, FALLBACKS};
pub use hugetlb_groups::HugetlbGroups;
pub use kernel::{KernelVersion, Mount, PtraceLimit};
pub use leaseholder::{LEASE_DIRECTORY, changed_settings, leaseholder};
pub use machine::online_processors;
pub use memory_groups::MemoryGroups;
pub use outer_tracer::{outer_tracer, tracer_of};
pub use perf::perf_refusal;
pub use policy::judge::{THP, thp_size_enabled};
pub use processes::{ProcessStat, resident_bytes, task_processor_ns, task_state};
pub use processor::Processor;
pub use processor_times::ProcessorTimes;
pub use read::{HostError, chosen_word, content};
pub use regular_file::open_regular;
pub use root::{MAX_STREAM_BYTES, MAX_TEXT_BYTES, Root};
pub use settings::IDLE_LATENCY;
pub use tlbs::ReportedTlb;

/// The directory of khugepaged's settings (Documentation/admin-guide/mm/transhuge.rst).
pub const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";
/// The directory of the hugetlb pools (Documentation/admin-guide/mm/hugetlbpage.rst).
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
    /// The host whose /proc and /sys are below `root`: `/`, or a captured tree.
    ///
    /// The page sizes and the names of the settings are read once, here; the values of settings at each [`Host::state`].
    pub fn open(root: impl Into<PathBuf>) -> Result<Host, HostError> {
        let root = Root::open(root)?;
        let page_sizes = page_sizes::read(&root)?;
        let settings = settings::list(&root)?;
        let counters = counters::list(&root)?;
        root.verify()?;
        Ok(Host { root, page_sizes, settings, counters })
    }

    /// The root directory of the host.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether this is the kernel on which this process runs.
    pub fn is_live(&self) -> bool {
        self.root.is_live()
    }

    /// The page sizes that the kernel offers.
    pub fn page_sizes(&self) -> &PageSizes {
        &self.page_sizes
    }

    /// The properties of the machine that do not change.
    pub fn machine(&self) -> Result<Machine, HostError> {
        self.verified(machine::read(self)?)
    }

    /// The processor by the name that machine files use, and what it reports about address translation. Facts that it does not
    /// report are absent.
    pub fn processor(&self) -> Result<Processor, HostError> {
        processor::read(&self.root)
    }

    /// The current settings and memory state. Takes well under 2 ms, so that it can be called around every trial. A setting that
    /// exists but cannot be read has the value `unknown: ` with the reason.
    pub fn state(&self) -> Result<State, HostError> {
        self.verified(state::read(self)?)
    }

    /// Bytes of memory that are currently available to new programs (`MemAvailable`).
    pub fn available_bytes(&self) -> Result<u64, HostError> {
        state::available_bytes(self)
    }

    /// The current values of the kernel's event counters.
    pub fn counters(&self) -> Result<Counters, HostError> {
        self.verified(counters::read(self)?)
    }

    /// The kernel's current activity around page sizes, for a live view.
    pub fn activity(&self) -> Result<Activity, HostError> {
        self.verified(activity::read(self)?)
    }

    /// The processes that have memory, in no particular order; one small file is read for each.
    pub fn processes(&self) -> Result<Vec<ProcessStat>, HostError> {
        processes::list(self)
    }

    /// The value of a setting (the chosen word of a file with choices); `None` where the file does not exist.
    pub fn value(&self, path: &str) -> Result<Option<String>, HostError> {
        Ok(absent::text(&self.root, path)?.map(|text| chosen_word(&text).to_string()))
    }

    /// Whether the file exists.
    pub fn has(&self, path: &str) -> Result<bool, HostError> {
        absent::exists(&self.root, path)
    }

    /// The value read, unless a file of a captured tree was refused in the meantime.
    fn verified<T>(&self, read: T) -> Result<T, HostError> {
        self.root.verify().map(|()| read)
    }

    /// Every file that a host is read from, as paths on the running host: a capture needs these and the beginning of
    /// `/proc/self/smaps`, which contains the base page size.
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
        let pools = pools.chain(self.node_pool_files());
        FIXED.map(String::from).into_iter().chain(settings).chain(counters).chain(pools).collect()
    }

    /// The limits that the control groups of this process put on hugetlb pages of `size`. A command that it starts has the same.
    pub fn hugetlb_limits(&self, size: PageSize) -> Result<HugetlbLimits, HostError> {
        let memberships = absent::text(&self.root, "/proc/self/cgroup")?.unwrap_or_default();
        HugetlbGroups::of(&self.root, &memberships)?.limits(&self.root, size)
    }

    /// Whether the scheduler weighs the sessions of this process and of the commands that it starts by their autogroups.
    pub fn autogroups(&self) -> Result<Autogroups, HostError> {
        self.verified(autogroups::read(&self.root)?)
    }

    /// The time that the processors have spent since boot, and the tasks that are runnable now.
    pub fn processor_times(&self) -> Result<ProcessorTimes, HostError> {
        self.verified(processor_times::read(&self.root)?)
    }

    /// The number in a file that contains nothing else; `None` where the file does not exist.
    pub fn number(&self, path: &str) -> Result<Option<u64>, HostError> {
        let number =
            |found: String| found.parse().map_err(|_| absent::unexpected(&self.root, path, "a number", &found));
        self.value(path)?.map(number).transpose()
    }

    /// As [`Host::number`], for a file that must exist.
    pub fn required_number(&self, path: &str) -> Result<u64, HostError> {
        self.number(path)?.ok_or_else(|| absent::unreadable(&self.root, path, io::ErrorKind::NotFound.into()))
    }
}

/// The path of a file of the hugetlb pool of `size`.
pub fn hugetlb_file(size: PageSize, file: &str) -> String {
    format!("{HUGETLB}/hugepages-{}kB/{file}", size.bytes() >> 10)
}
