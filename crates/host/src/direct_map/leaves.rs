//! Bytes of the direct map by the size of its leaves.
//!
//! The counters of x86 begin too high: where boot maps a range twice, `phys_pud_init` and its siblings
//! (arch/x86/mm/init_64.c) count leaves that were there already, which makes some gigabytes on any machine.
//! What is counted beyond the memory that there is can be in any counter, but in none by more than the
//! counter held at boot, which the splits and collapses since then tell. So a share is a lower bound
//! ([`Leaves::certain`]). A demotion knows more: where a secret page was, no larger leaf is left, whatever is counted,
//! and its mark tells how much memory that is ([`Leaves::split_bytes`]).

use std::collections::BTreeMap;

use policy::size::{PageSize, format_bytes};
use policy::verdict::Verdict;

/// Page tables of the kernel as text, where it is built with CONFIG_PTDUMP_DEBUGFS (arm64, RISC-V).
const PTDUMP: &str = "/sys/kernel/debug/kernel_page_tables";

/// Where the figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The lines `DirectMap*` of /proc/meminfo (x86, s390).
    Meminfo,
    /// A dump of the kernel's page tables.
    Ptdump,
}

/// What maps all memory for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Bytes by leaf size.
    pub bytes: BTreeMap<PageSize, u64>,
    /// Those of them that stand in runs with the contiguous bit (arm64), by leaf size.
    pub contiguous_bytes: BTreeMap<PageSize, u64>,
    /// Bytes by leaf size when the kernel had booted, as far as splits and collapses are counted.
    pub boot_bytes: BTreeMap<PageSize, u64>,
    /// Memory that a demotion certainly took out of leaves of this size, by this size.
    pub split_bytes: BTreeMap<PageSize, u64>,
    /// Memory that there is to map; absent where the kernel does not say.
    pub memory_bytes: Option<u64>,
    /// Who says so.
    pub source: Source,
}

impl Source {
    /// The file.
    pub fn file(self) -> &'static str {
        match self {
            Source::Meminfo => "/proc/meminfo",
            Source::Ptdump => PTDUMP,
        }
    }
}

impl Leaves {
    /// What the kernel counts, all sizes together.
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// All of the direct map: what is counted, but not more than there is memory.
    pub fn total_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(u64::MAX).min(self.counted_bytes())
    }

    /// What boot counted twice; `None` where no more is counted than there is memory, but for a page or two at its ends.
    pub fn counted_twice_bytes(&self) -> Option<u64> {
        let (counted, total) = (self.counted_bytes(), self.total_bytes());
        (format_bytes(counted) != format_bytes(total)).then_some(counted - total)
    }

    /// What certainly lies in leaves of this size: the count, less what it may be too high by; or what was taken out
    /// of the next larger leaves, less what is counted of smaller ones.
    pub fn certain(&self, leaf: PageSize) -> u64 {
        let too_high = self.counted_bytes() - self.total_bytes();
        let at_boot = self.boot_bytes.get(&leaf).copied().unwrap_or_else(|| self.of(leaf));
        let by_count = self.of(leaf).saturating_sub(too_high.min(at_boot));
        let larger = self.bytes.keys().find(|size| **size > leaf);
        let split = larger.and_then(|larger| self.split_bytes.get(larger)).copied().unwrap_or(0);
        by_count.max(split.saturating_sub(self.below(leaf))).min(self.total_bytes())
    }

    /// What lies in leaves of this size at most: none of what was taken out of them.
    pub fn possible(&self, leaf: PageSize) -> u64 {
        let split = self.split_bytes.range(..=leaf).map(|(_, bytes)| *bytes).max().unwrap_or(0);
        self.of(leaf).min(self.total_bytes().saturating_sub(split))
    }

    /// So much memory was certainly taken out of leaves of this size.
    pub fn split(&mut self, leaf: PageSize, bytes: u64) {
        let known = self.split_bytes.entry(leaf).or_default();
        *known = bytes.max(*known);
    }

    /// What is counted of leaves of exactly this size.
    pub fn of(&self, leaf: PageSize) -> u64 {
        self.bytes.get(&leaf).copied().unwrap_or(0)
    }

    /// What is counted of larger leaves.
    pub fn above(&self, leaf: PageSize) -> u64 {
        self.bytes.iter().filter(|(size, _)| **size > leaf).map(|(_, bytes)| bytes).sum()
    }

    /// What is counted of smaller leaves.
    pub fn below(&self, leaf: PageSize) -> u64 {
        self.bytes.iter().filter(|(size, _)| **size < leaf).map(|(_, bytes)| bytes).sum()
    }

    /// The share of the direct map that certainly lies in leaves of exactly this size.
    pub fn ratio(&self, leaf: PageSize) -> f64 {
        self.certain(leaf) as f64 / self.total_bytes().max(1) as f64
    }

    /// The size that certainly maps nine tenths ([`Verdict::HELD`]), if any does.
    pub fn shown(&self) -> Option<PageSize> {
        self.bytes.keys().copied().find(|leaf| self.ratio(*leaf) >= Verdict::HELD)
    }

    /// What lies in leaves of the size that it lay in before, at least.
    pub fn unchanged_bytes(&self, before: &Leaves) -> u64 {
        let kept: u64 = self.bytes.iter().map(|(leaf, bytes)| (*bytes).min(before.of(*leaf))).sum();
        kept.min(self.total_bytes())
    }

    /// The share of the direct map in leaves of exactly this size, for people: from what is certain to what is possible.
    pub fn share(&self, leaf: PageSize) -> String {
        let percent = |bytes: u64| format!("{:.1}", bytes as f64 * 100.0 / self.total_bytes().max(1) as f64);
        let (least, most) = (percent(self.certain(leaf)), percent(self.possible(leaf)));
        if least == most { format!("{least} %") } else { format!("{least} to {most} %") }
    }
}
