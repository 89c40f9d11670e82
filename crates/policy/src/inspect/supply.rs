//! The state of memory that decides which pages the kernel could allocate.

use std::collections::BTreeMap;

use crate::size::PageSize;

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

/// The state of memory that decides whether the kernel could allocate larger pages, at the time of the inspection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// Base page size in bytes.
    pub base_bytes: u64,
    /// Free blocks of the system by order (/proc/buddyinfo), order 0 first.
    pub free_blocks_by_order: Vec<u64>,
    /// Memory available to new programs, in bytes.
    pub available_bytes: u64,
    /// Settings by path.
    pub settings: BTreeMap<String, String>,
    /// The hugetlb pools of the system.
    pub pools: Vec<Pool>,
    /// The kernel's event counters, by the names of `host::Counters`, for the whole system.
    pub counters: BTreeMap<String, u64>,
    /// The start of the period that the counters cover.
    pub counted_since: Since,
}

/// The start of the period that counters cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// System boot.
    #[default]
    Boot,
    /// The start of the inspected command: the counters cover the command's time and little else.
    Command,
}

impl Since {
    /// A few words for a report.
    pub fn describe(self) -> &'static str {
        match self {
            Since::Boot => "since the boot",
            Since::Command => "since the command's start",
        }
    }
}

impl Supply {
    /// This supply with the counters relative to `start`, which was taken when the command started. A counter that only one of
    /// the two has is left out.
    pub fn since(mut self, start: &Supply) -> Supply {
        let moved = |(name, now): (String, u64)| {
            let by = now.checked_sub(start.counter(&name)?)?;
            Some((name, by))
        };
        self.counters = self.counters.into_iter().filter_map(moved).collect();
        self.counted_since = Since::Command;
        self
    }

    /// The value of a counter; 0 where it never moved, `None` where this kernel does not have it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Number of free blocks of at least this order.
    pub fn free_blocks_from(&self, order: u32) -> u64 {
        self.free_blocks_by_order.iter().skip(order as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
