//! Hugetlb pools as a program sees them: a [`Pool`] with its pages, the [`HugetlbLimits`] of control groups, and the
//! program's own requests that the kernel refused.

use serde::{Deserialize, Serialize};

use crate::size::{PageSize, format_bytes};

/// A hugetlb pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Page size of the pool.
    pub size: PageSize,
    /// Number of pages in the pool, used or not.
    pub pages: u64,
    /// Pages that are free and not reserved (`free_hugepages` less `resv_hugepages`).
    pub free: u64,
    /// Pages that are reserved for mappings that have not touched them yet. They count as free in `free_hugepages`.
    pub reserved: u64,
    /// Pages beyond the configured number, which go back to the system when they are freed.
    pub surplus: u64,
    /// Surplus pages that the pool may still take from the system.
    pub surplus_left: u64,
    /// The pool's pages by NUMA node; empty where the kernel does not report nodes.
    pub nodes: Vec<NodePool>,
}

/// The pages of a hugetlb pool on one NUMA node. The kernel does not reserve pages by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePool {
    /// Number of the node.
    pub node: u32,
    /// Pages on the node, used or not.
    pub pages: u64,
    /// Pages on the node that are free, reserved or not.
    pub free: u64,
    /// Surplus pages on the node.
    pub surplus: u64,
}

impl Pool {
    /// Pages that hold memory of processes or files.
    pub fn used(&self) -> u64 {
        self.pages.saturating_sub(self.free).saturating_sub(self.reserved)
    }

    /// Pages that a program can still get.
    pub fn available(&self) -> u64 {
        self.free.saturating_add(self.surplus_left)
    }

    /// The pool's pages in one clause: `64 pages of 2M: 10 used, 4 reserved, 50 free`. Nodes follow where there are several.
    pub fn describe(&self) -> String {
        let Pool { size, pages, free, reserved, surplus, .. } = self;
        let surplus = if *surplus > 0 { format!(", {surplus} of them surplus") } else { String::new() };
        let more =
            if self.surplus_left > 0 { format!(", {} more on demand", self.surplus_left) } else { String::new() };
        let nodes = self.nodes.iter().filter(|_| self.nodes.len() > 1);
        let nodes = nodes.map(|node| format!("; node {}: {} of {} free", node.node, node.free, node.pages));
        let used = self.used();
        format!(
            "{pages} pages of {size}{surplus}: {used} used, {reserved} reserved, {free} free{more}{}",
            nodes.collect::<String>()
        )
    }
}

/// What a limit of a control group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Pages in use (`hugetlb.SIZE.max`, `limit_in_bytes`). A fault beyond the limit raises SIGBUS, even if its page was
    /// reserved.
    Use,
    /// Reserved pages (`hugetlb.SIZE.rsvd.max`, `rsvd.limit_in_bytes`). An mmap beyond the limit fails. A fault on a page without
    /// a reservation, such as a CoW copy after fork, counts too, and raises SIGBUS beyond the limit.
    Reservation,
}

/// A limit that a control group puts on hugetlb pages of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbLimit {
    /// Page size of the pool.
    pub size: PageSize,
    /// The file with the limit.
    pub file: String,
    /// Whether it counts pages in use or reserved pages.
    pub limited: Limited,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// Bytes of the group and its descendants that count against the limit.
    pub used_bytes: u64,
    /// The text to write to the file to remove the limit.
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
    /// Whether there may be more limits, in groups that are not visible in this cgroup namespace.
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

/// Requests of a program for hugetlb pages that the kernel refused; equal requests are counted together.
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

/// The error number of a request for which the pool has too few pages (include/uapi/asm-generic/errno-base.h).
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
    /// The state of the pool and of the limit when the request was refused, one clause each.
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

    #[test]
    fn a_pool_is_described_with_its_nodes_where_there_are_several() {
        let node = |node, pages, free| NodePool { node, pages, free, surplus: 0 };
        let (size, one) = (PageSize::M2, vec![node(0, 64, 54)]);
        let pool = Pool { size, pages: 64, free: 50, reserved: 4, surplus: 0, surplus_left: 0, nodes: one };
        assert_eq!((pool.used(), pool.available()), (10, 50));
        assert_eq!(pool.describe(), "64 pages of 2M: 10 used, 4 reserved, 50 free");
        let nodes = vec![node(0, 48, 0), node(1, 16, 2)];
        let pool = Pool { free: 2, reserved: 0, surplus: 3, surplus_left: 7, nodes, ..pool };
        let text = "64 pages of 2M, 3 of them surplus: 62 used, 0 reserved, 2 free, 7 more on demand; node 0: 0 of 48 free; \
                    node 1: 2 of 16 free";
        assert_eq!((pool.describe().as_str(), pool.available()), (text, 9));
    }
}
