//! [`Supply`]: what the kernel could allocate, and how often allocations failed.

use std::collections::BTreeMap;

use crate::size::PageSize;

pub use crate::hugetlb::Pool;

/// Free memory, settings and counters at the time of the inspection.
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
    /// Another pagelab that has leased system settings; the host's own may differ from `settings`.
    pub leaseholder: Option<String>,
    /// The leased settings that now differ from the host's own. Only root can know them.
    pub changed_settings: Vec<ChangedSetting>,
}

/// A leased setting with another value than the host's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    /// Its file.
    pub path: String,
    /// The value in force.
    pub now: String,
    /// The value before the lease, which it gets back.
    pub own: String,
}

impl ChangedSetting {
    /// `/sys/…/enabled is always (own value: madvise), and 3 other settings differ`; `None` for no settings.
    pub fn describe(settings: &[ChangedSetting]) -> Option<String> {
        /// A policy of one mTHP size changes the setting of every size.
        const SHOWN: usize = 3;
        let shown = settings.iter().take(SHOWN);
        let mut parts: Vec<String> =
            shown.map(|ChangedSetting { path, now, own }| format!("{path} is {now} (own value: {own})")).collect();
        match settings.len().saturating_sub(SHOWN) {
            0 => {}
            1 => parts.push("1 other setting differs".to_owned()),
            others => parts.push(format!("{others} other settings differ")),
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Faults that did not get a folio of a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallbacks {
    /// The name of the counter.
    pub counter: String,
    /// Faults for which the kernel found no free block.
    pub no_block: u64,
    /// Faults that a control group's memory limit did not admit.
    pub over_limit: u64,
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
    /// The period as a phrase.
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

    /// The faults that did not get a folio of this size, of all processes.
    pub fn fallbacks(&self, size: PageSize) -> Fallbacks {
        let own = format!("hugepages-{}kB/anon_fault_fallback", size.bytes() >> 10);
        // Before Linux 6.10 only PMD size has counters.
        let counter = if self.counter(&own).is_some() { own } else { "thp_fault_fallback".to_owned() };
        let all = self.counter(&counter).unwrap_or(0);
        let over_limit = self.counter(&format!("{counter}_charge")).unwrap_or(0);
        Fallbacks { counter, no_block: all.saturating_sub(over_limit), over_limit }
    }

    /// Number of free blocks of at least this order.
    pub fn free_blocks_from(&self, order: u32) -> u64 {
        self.free_blocks_by_order.iter().skip(order as usize).sum()
    }
}
