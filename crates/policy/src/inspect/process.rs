//! The process that was looked at, and how.

use crate::size::format_bytes;

/// Who was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id, in the PID namespace of this /proc.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot: with the id it names a process for good.
    pub started_ticks: u64,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its command line; empty where it has none or it cannot be read.
    pub command: Vec<String>,
    /// The program; `None` where it cannot be read.
    pub program: Option<String>,
    /// Its user; `None` where it cannot be read.
    pub user_id: Option<u32>,
    /// Whether it was forked and has not executed a program since (PF_FORKNOEXEC).
    pub is_fork: bool,
    /// Whether PR_SET_THP_DISABLE is in force.
    pub thp: ThpMode,
    /// Threads.
    pub threads: u64,
    /// Bytes that are swapped out; `None` where it cannot be read.
    pub swap_bytes: Option<u64>,
    /// The most that was ever present of it (VmHWM); the kernel updates it now and then. `None` where it cannot be read.
    pub peak_bytes: Option<u64>,
    /// Bytes that it has pinned (VmPin: RDMA, VFIO, io_uring); `None` where it cannot be read.
    pub pinned_bytes: Option<u64>,
    /// Its memory control group, as a path below the mount of control groups; `None` where it cannot be read.
    pub memory_cgroup: Option<String>,
    /// The limit of memory that was reached, of its control group or of one above it; else that of its own. `None` where nothing
    /// can be read of it.
    pub memory_limit: Option<MemoryLimit>,
}

/// What a memory control group says of its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Its directory.
    pub group: String,
    /// The limit (`memory.max`, `memory.limit_in_bytes`); `None` without one.
    pub limit_bytes: Option<u64>,
    /// What is charged (`memory.current`, `memory.usage_in_bytes`).
    pub charged_bytes: u64,
    /// How often a charge met the limit (`max` in `memory.events`, `memory.failcnt`).
    pub reached: u64,
}

impl MemoryLimit {
    /// Bytes that can still be charged without reclaim.
    pub fn left_bytes(&self) -> u64 {
        self.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.charged_bytes))
    }

    /// One clause.
    pub fn describe(&self) -> String {
        let limit = self.limit_bytes.map_or("no limit".to_string(), |limit| format!("limit {}", format_bytes(limit)));
        let charged = format_bytes(self.charged_bytes);
        format!("{}: {limit}, charged {charged}, limit met {} times", self.group, self.reached)
    }
}

/// What a process says of transparent pages (`THP_enabled` in /proc/PID/status, Linux 5.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpMode {
    /// Not disabled; or disabled except for advised memory (Linux 6.18), which this file does not show.
    Enabled,
    /// Disabled for the whole process.
    Disabled,
    /// The kernel does not say.
    #[default]
    Unknown,
}

/// How the figures were obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Whether leaves and places are from PAGEMAP_SCAN; else they are sums of smaps (before Linux 6.7).
    pub by_page: bool,
    /// Whether folios behind base-page entries are seen (root: pagemap frame numbers and kpageflags).
    pub folios: bool,
    /// Whether the flags of mappings were read (smaps). Without them there are no causes.
    pub flags: bool,
    /// Whether this is the running kernel, and not a capture.
    pub is_live: bool,
}

impl Sight {
    /// How each kind of figure was obtained, a clause each.
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
