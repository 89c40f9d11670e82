//! [`Process`]: the inspected process. [`Visibility`]: how it was inspected.

use super::{Jemalloc, RefusedBasePages, SecondStage};
use crate::hugetlb::HugetlbLimit;
use crate::size::format_bytes;

/// The inspected process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its PID, in the PID namespace of this /proc.
    pub pid: u32,
    /// Its start time in clock ticks since boot. Together with the PID it identifies the process uniquely.
    pub started_ticks: u64,
    /// Its name (`comm`).
    pub name: String,
    /// Its command line; empty where there is none or it cannot be read.
    pub command: Vec<String>,
    /// The path of its program; `None` where it cannot be read.
    pub program: Option<String>,
    /// Its user ID; `None` where it cannot be read.
    pub user_id: Option<u32>,
    /// Whether it was forked and has not executed a program since (PF_FORKNOEXEC).
    pub is_fork: bool,
    /// Whether it shows no sign of having forked: it is no fork itself, has no children, has waited for none that had a page
    /// fault, and does not ignore SIGCHLD. `false` also where this cannot be read.
    pub shows_no_fork: bool,
    /// Its page faults since its creation (`minflt` and `majflt` in /proc/PID/stat); `None` where they cannot be read.
    pub faults: Option<u64>,
    /// Whether PR_SET_THP_DISABLE is in force for it.
    pub thp: ThpMode,
    /// Number of threads.
    pub threads: u64,
    /// Bytes that are swapped out; `None` where this cannot be read.
    pub swap_bytes: Option<u64>,
    /// Bytes freed with MADV_FREE that the kernel has not reclaimed yet (LazyFree in smaps); `None` where smaps was not read.
    pub lazy_free_bytes: Option<u64>,
    /// Bytes that it maps and that are mapped more than once (`Shared_*` in smaps); `None` where smaps was not read.
    pub mapped_again_bytes: Option<u64>,
    /// Its memory outside hugetlb pools, each page divided by the number of its mappings (`Pss` in smaps); `None` where smaps was
    /// not read.
    pub proportional_bytes: Option<u64>,
    /// For the anonymous and shared-memory folios that the process maps only in part: bytes outside the mapped part. They
    /// stay allocated as long as the mapped part does. Other processes may map them. `None` where folios are not visible.
    pub held_unmapped_bytes: Option<u64>,
    /// The contents of its large pages, where they were requested.
    pub contents: Option<Contents>,
    /// Peak resident memory in bytes (VmHWM), which the kernel does not update continuously. `None` where it cannot be read.
    pub peak_bytes: Option<u64>,
    /// Bytes that the process has pinned (VmPin: RDMA, VFIO, io_uring); `None` where this cannot be read.
    pub pinned_bytes: Option<u64>,
    /// Its memory control group, as a path below the cgroup mount; `None` where it cannot be read.
    pub memory_cgroup: Option<String>,
    /// The memory limit that was reached, in its control group or an ancestor; otherwise the limit of its own group. `None` where
    /// no limit can be read.
    pub memory_limit: Option<MemoryLimit>,
    /// Whether its program and libraries can be loaded with larger base pages.
    pub base_page_support: BasePageSupport,
    /// Copies of jemalloc in its program and libraries that may refuse larger base pages; `None` where the files were not
    /// searched.
    pub jemalloc: Option<Vec<Jemalloc>>,
    /// What maps the memory of its virtual machines; `None` where it has none.
    pub second_stage: Option<SecondStage>,
    /// Limits that its control groups put on hugetlb pages, of all sizes; empty in a capture.
    pub hugetlb_limits: Vec<HugetlbLimit>,
}

/// Which larger base page sizes a program and its libraries can be loaded with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BasePageSupport {
    /// With every size.
    All,
    /// Not with every size.
    Refused(RefusedBasePages),
    /// Its files were not read.
    #[default]
    Unknown,
}

/// The contents of leaves and folios larger than base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes of base pages in them that hold only zeros. They were never written, or zeros were written to them.
    pub zero_bytes: u64,
    /// Bytes that were not read, because of the read limit or because they were freed in the meantime.
    pub unread_bytes: u64,
}

/// The memory limit of a control group and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Directory of the control group.
    pub group: String,
    /// The limit in bytes (`memory.max`, `memory.limit_in_bytes`); `None` without one.
    pub limit_bytes: Option<u64>,
    /// Charged bytes (`memory.current`, `memory.usage_in_bytes`).
    pub charged_bytes: u64,
    /// How often a charge hit the limit (`max` in `memory.events.local`, `memory.failcnt`).
    pub reached: u64,
}

impl MemoryLimit {
    /// Bytes that can still be charged without reclaim.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.charged_bytes))
    }

    /// The limit and its use in one clause.
    pub fn describe(&self) -> String {
        let limit = self.limit_bytes.map_or("no limit".to_string(), |limit| format!("limit {}", format_bytes(limit)));
        let charged = format_bytes(self.charged_bytes);
        format!("{}: {limit}, charged {charged}, limit met {} times", self.group, self.reached)
    }
}

/// The state of transparent huge pages for a process (`THP_enabled` in /proc/PID/status, Linux 5.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpMode {
    /// Not disabled, or disabled except for advised memory (Linux 6.18): the file does not distinguish the two.
    Enabled,
    /// Disabled for the whole process.
    Disabled,
    /// The kernel does not report it.
    #[default]
    Unknown,
}

/// How the figures were obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visibility {
    /// Whether leaves and their addresses come from PAGEMAP_SCAN; otherwise they are sums from smaps (before Linux 6.7).
    pub by_page: bool,
    /// Whether folios behind base-page PTEs are visible (root: frame numbers in pagemap, and kpageflags).
    pub folios: bool,
    /// Whether the flags of mappings were read (smaps). Without them no causes are reported.
    pub flags: bool,
    /// Whether the data comes from the running kernel and not from a capture.
    pub is_live: bool,
}

impl Visibility {
    /// One clause for each kind of figure, on how it was obtained.
    pub fn describe(&self) -> Vec<String> {
        let leaves = if self.by_page {
            "leaf sizes and places: PAGEMAP_SCAN, exact"
        } else {
            "leaf sizes: sums of smaps (PAGEMAP_SCAN needs Linux 6.7); places inside a mapping, zero pages and \
                  folios are not visible"
        };
        let folios = match (self.folios, self.by_page) {
            (true, _) => "folio sizes: pagemap frames and /proc/kpageflags, exact",
            (false, true) => {
                "folio sizes below the leaf: not visible without root; a size that no process has is known not to be there"
            }
            (false, false) => "folio sizes: not visible",
        };
        let flags = if self.flags {
            "advice and flags: VmFlags in smaps"
        } else {
            "advice, flags, swap and guards inside mappings: not read (smaps); so it is not known why pages are not larger"
        };
        let source = if self.is_live { None } else { Some("all of it: from a capture, not from a running kernel") };
        [leaves, folios, flags].into_iter().chain(source).map(String::from).collect()
    }
}
