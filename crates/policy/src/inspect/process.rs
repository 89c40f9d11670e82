//! The process that was looked at, and how.

use std::collections::BTreeMap;

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
    /// Bytes that are swapped out.
    pub swap_bytes: u64,
    /// The most that was ever present of it (VmHWM); the kernel updates it now and then.
    pub peak_bytes: u64,
    /// Bytes that it has pinned (VmPin: RDMA, VFIO, io_uring).
    pub pinned_bytes: u64,
    /// Its memory control group, as a path below the mount of control groups; `None` where it cannot be read.
    pub memory_cgroup: Option<String>,
    /// What the memory control group says of its limit: file to value.
    pub memory_limits: BTreeMap<String, String>,
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
    /// Whether the flags of mappings were read (smaps); they are not where nothing depends on them.
    pub flags: bool,
    /// Whether this is the running kernel, and not a capture.
    pub is_live: bool,
}

impl Sight {
    /// How each kind of figure was obtained, a clause each.
    pub fn describe(&self) -> Vec<String> {
        let leaves = match self.by_page {
            true => "leaf sizes and places: PAGEMAP_SCAN, exact",
            false => {
                "leaf sizes: sums of smaps (PAGEMAP_SCAN needs Linux 6.7); places inside a mapping, zero pages and \
                      folios are not visible"
            }
        };
        let folios = match (self.folios, self.by_page) {
            (true, _) => "folio sizes: pagemap frames and /proc/kpageflags, exact",
            (false, true) => {
                "folio sizes below the leaf: not visible without root; a size that no process has is known not to be there"
            }
            (false, false) => "folio sizes: not visible",
        };
        let flags = match self.flags {
            true => "advice and flags: VmFlags in smaps",
            false => "advice and flags: not read, because no cause depends on them",
        };
        let source = if self.is_live { None } else { Some("all of it: from a capture, not from a running kernel") };
        [leaves, folios, flags].into_iter().chain(source).map(String::from).collect()
    }
}
