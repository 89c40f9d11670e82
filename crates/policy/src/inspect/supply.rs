//! What the kernel could give.

use std::collections::BTreeMap;

use crate::size::PageSize;

/// A hugetlb pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The size of its pages.
    pub size: PageSize,
    /// Pages that it has.
    pub pages: u64,
    /// Pages that are free and not promised to anybody.
    pub free: u64,
    /// Surplus pages that it may still take from the system.
    pub surplus_left: u64,
}

/// The state of memory that decides whether the kernel could give larger pages, at the time of the look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// The base page in bytes.
    pub base_bytes: u64,
    /// Free blocks of the system by order (/proc/buddyinfo), the base page first.
    pub free_blocks_by_order: Vec<u64>,
    /// Memory that new programs can have.
    pub available_bytes: u64,
    /// Settings: path to value.
    pub settings: BTreeMap<String, String>,
    /// The hugetlb pools of the system.
    pub pools: Vec<Pool>,
    /// The kernel's event counters since its boot, by the names of `host::Counters`; for the whole system.
    pub counters: BTreeMap<String, u64>,
}

impl Supply {
    /// A counter; 0 where it never moved, `None` where this kernel does not have it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Free blocks of an order or larger.
    pub fn free_blocks_from(&self, order: u32) -> u64 {
        self.free_blocks_by_order.iter().skip(order as usize).sum()
    }
}
