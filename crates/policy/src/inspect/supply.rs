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
    /// The kernel's event counters, by the names of `host::Counters`; for the whole system.
    pub counters: BTreeMap<String, u64>,
    /// From when on they count.
    pub counted_since: Since,
}

/// From when on counters count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// The system's boot.
    #[default]
    Boot,
    /// The start of the command that is inspected: they have all of its time, and little else.
    Command,
}

impl Since {
    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Since::Boot => "since the boot",
            Since::Command => "since the command's start",
        }
    }
}

impl Supply {
    /// The same, with counters from an earlier supply on, which was taken when the command started. One that only one of the two
    /// has is left out.
    pub fn since(mut self, start: &Supply) -> Supply {
        let moved = |(name, now): (String, u64)| {
            let by = now.checked_sub(start.counter(&name)?)?;
            Some((name, by))
        };
        self.counters = self.counters.into_iter().filter_map(moved).collect();
        self.counted_since = Since::Command;
        self
    }

    /// A counter; 0 where it never moved, `None` where this kernel does not have it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// Free blocks of an order or larger.
    pub fn free_blocks_from(&self, order: u32) -> u64 {
        self.free_blocks_by_order.iter().skip(order as usize).sum()
    }
}
