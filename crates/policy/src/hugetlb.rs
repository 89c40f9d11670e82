//! Hugetlb pools from the point of view of a program: what its control groups let it take, and the pages that it asked for itself
//! and did not get.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::inspect::Pool;
use crate::size::{PageSize, format_bytes};

/// What a limit of a control group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Pages in use (`hugetlb.SIZE.max`, `limit_in_bytes`). A fault beyond the limit is SIGBUS, even if its page was reserved.
    Use,
    /// Reserved pages (`hugetlb.SIZE.rsvd.max`, `rsvd.limit_in_bytes`). An mmap beyond the limit fails. A fault without a
    /// reservation, as on a copy after fork, counts too, and is SIGBUS beyond it.
    Reservation,
}

/// A limit that a control group puts on hugetlb pages of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbLimit {
    /// Page size of the pool.
    pub size: PageSize,
    /// The file with the limit.
    pub file: String,
    /// What it counts.
    pub limited: Limited,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// What the group and the groups below it use of it.
    pub used_bytes: u64,
    /// The text to write to the file so that it limits nothing.
    pub unlimited: &'static str,
}

impl HugetlbLimit {
    /// Bytes that may still be taken.
    pub fn room_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// The file, the limit and its use in one clause.
    pub fn describe(&self) -> String {
        let (limit, used) = (format_bytes(self.limit_bytes), format_bytes(self.used_bytes));
        format!("{} is {limit}, {used} of it used", self.file)
    }
}

/// The limits of a process's control groups for pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugetlbLimits {
    /// Limits of its own group first, then of each ancestor.
    pub limits: Vec<HugetlbLimit>,
    /// Whether there may be more, of groups that are not visible in this cgroup namespace.
    pub may_be_hidden: bool,
}

impl HugetlbLimits {
    /// The limit that leaves the least room; the nearest of several.
    pub fn tightest(&self) -> Option<&HugetlbLimit> {
        self.limits.iter().min_by_key(|limit| limit.room_bytes())
    }

    /// Pages that all limits leave room for; `u64::MAX` without a limit.
    pub fn room_pages(&self) -> u64 {
        self.tightest().map_or(u64::MAX, |limit| limit.room_bytes() / limit.size.bytes())
    }

    /// Whether there is a limit, or may be one.
    pub fn is_limited(&self) -> bool {
        self.may_be_hidden || !self.limits.is_empty()
    }

    /// Whether a fault on a reserved page may be refused.
    pub fn may_refuse_faults(&self) -> bool {
        self.may_be_hidden || self.limits.iter().any(|limit| limit.limited == Limited::Use)
    }
}

/// A call by which a program itself asks for pages of a hugetlb pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestCall {
    /// mmap with MAP_HUGETLB.
    Mmap,
    /// shmget with SHM_HUGETLB.
    Shmget,
    /// memfd_create with MFD_HUGETLB. Pages are asked for when the file is mapped.
    MemfdCreate,
}

/// Pages that a program asked of a hugetlb pool and that the kernel refused; like requests together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The call.
    pub call: RequestCall,
    /// The page size that it asked for.
    pub size: PageSize,
    /// The error number that the kernel returned.
    pub errno: i32,
    /// How often it was refused.
    pub times: u64,
    /// Pages that the largest of the requests asked for; 0 for a call without a length.
    pub pages: u64,
    /// The pool when the last request was refused; `None` where the kernel has no pool of that size.
    pub pool: Option<Pool>,
    /// The limit that left less room than the last request needed; `None` without one.
    pub limit: Option<HugetlbLimit>,
}

/// A file on hugetlbfs. Its pages stay in use until it is removed, whether or not a process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbFile {
    /// Its path; bytes that are not text are escaped.
    pub path: String,
    /// The page size of its file system; `None` where the mount table does not name one.
    pub page_size: Option<PageSize>,
    /// Bytes of pages that it holds.
    pub bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Processes that map it or have it open, by PID.
    pub holders: Vec<u32>,
}

/// The files on all hugetlbfs mounts of this mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugetlbFiles {
    /// The files, those that hold most first.
    pub files: Vec<HugetlbFile>,
    /// Whether there are more entries than were read.
    pub is_cut: bool,
    /// Processes whose files this user may not see. Any of them may hold a file.
    pub unseen_processes: u64,
    /// Directories and tables that could not be read, with the reason.
    pub unread: Vec<String>,
}

/// The error number of a pool that has too few pages (include/uapi/asm-generic/errno-base.h).
pub const ENOMEM: i32 = 12;

impl RequestCall {
    /// The call in manual-page notation.
    pub fn describe(self) -> &'static str {
        match self {
            RequestCall::Mmap => "mmap(MAP_HUGETLB)",
            RequestCall::Shmget => "shmget(SHM_HUGETLB)",
            RequestCall::MemfdCreate => "memfd_create(MFD_HUGETLB)",
        }
    }
}

impl RefusedRequest {
    /// The request as a fact about a trial.
    pub fn cause(&self) -> Cause {
        let RefusedRequest { call, size, errno, times, pages, .. } = *self;
        let free = self.pool.as_ref().map(|pool| pool.free);
        Cause::PoolRequestRefused { call, size, errno, times, pages, free, is_limited: self.limit.is_some() }
    }

    /// What the pool and the control groups had at that time, one clause each.
    pub fn seen(&self) -> Vec<String> {
        let pool = self.pool.as_ref().map(|pool| format!("the pool at that time: {}", pool.describe()));
        pool.into_iter().chain(self.limit.as_ref().map(HugetlbLimit::describe)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(limited: Limited, limit_bytes: u64, used_bytes: u64) -> HugetlbLimit {
        let (size, file) = (PageSize::M2, "/sys/fs/cgroup/a/hugetlb.2MB.max".into());
        HugetlbLimit { size, file, limited, limit_bytes, used_bytes, unlimited: "max" }
    }

    #[test]
    fn the_limit_with_the_least_room_decides() {
        let none = HugetlbLimits::default();
        assert_eq!((none.room_pages(), none.may_refuse_faults()), (u64::MAX, false));
        let use_limit = limit(Limited::Use, 64 << 20, 60 << 20);
        let both = vec![limit(Limited::Reservation, 8 << 20, 0), use_limit.clone()];
        let limits = HugetlbLimits { limits: both, may_be_hidden: false };
        assert_eq!((limits.room_pages(), limits.tightest()), (2, Some(&use_limit)));
        assert!(limits.may_refuse_faults());
        assert_eq!(use_limit.describe(), "/sys/fs/cgroup/a/hugetlb.2MB.max is 64M, 60M of it used");
        let lowered = HugetlbLimits { limits: vec![limit(Limited::Reservation, 0, 2 << 20)], may_be_hidden: false };
        assert_eq!((lowered.room_pages(), lowered.may_refuse_faults()), (0, false), "lowered below what is used");
        assert!(lowered.is_limited() && !none.is_limited());
        let hidden = HugetlbLimits { may_be_hidden: true, ..none };
        assert!(hidden.may_refuse_faults() && hidden.is_limited());
    }
}
