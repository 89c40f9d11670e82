//! [`Leaves`]: bytes of the direct map by leaf size.
//!
//! The counters of x86 are too high from boot on. Where boot maps a range twice, `phys_pud_init` and its siblings
//! (arch/x86/mm/init_64.c) count existing leaves again, which adds some gigabytes on any machine. The bytes counted in excess
//! of the existing memory can be in any counter. In each counter they are at most its value at boot, which follows from the
//! splits and collapses since then. So a share is a lower bound ([`Leaves::certain`]). A demotion gives more information:
//! where a secret page was, no larger leaf is left, whatever the counters show, and the marker records how much memory that
//! is ([`Leaves::split_bytes`]).

use std::collections::BTreeMap;

use policy::size::{PageSize, format_bytes};
use policy::verdict::Verdict;

/// The kernel's page tables as text, on kernels with CONFIG_PTDUMP_DEBUGFS (arm64, RISC-V).
const PTDUMP: &str = "/sys/kernel/debug/kernel_page_tables";

/// The source of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The lines `DirectMap*` of /proc/meminfo (x86, s390).
    Meminfo,
    /// A dump of the kernel's page tables, `PTDUMP`.
    Ptdump,
}

/// The leaves that map all memory for the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Bytes by leaf size.
    pub bytes: BTreeMap<PageSize, u64>,
    /// Bytes in leaves with the contiguous bit (arm64), by leaf size; they are also part of `bytes`.
    pub contiguous_bytes: BTreeMap<PageSize, u64>,
    /// Bytes by leaf size at boot, as far as splits and collapses are counted.
    pub boot_bytes: BTreeMap<PageSize, u64>,
    /// Memory that a demotion is certain to have taken out of leaves of this size, by leaf size.
    pub split_bytes: BTreeMap<PageSize, u64>,
    /// Bytes of memory to be mapped; absent where the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// The source of the figures.
    pub source: Source,
}

impl Source {
    /// The path of the file.
    pub fn file(self) -> &'static str {
        match self {
            Source::Meminfo => "/proc/meminfo",
            Source::Ptdump => PTDUMP,
        }
    }
}

impl Leaves {
    /// The sum of the kernel's counters over all sizes, in bytes.
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// The size of the direct map in bytes: the sum of the counters, but not more than the existing memory.
    pub fn total_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(u64::MAX).min(self.counted_bytes())
    }

    /// Bytes that boot counted twice; `None` where the counters do not exceed the existing memory, apart from a page or two at
    /// its ends.
    pub fn counted_twice_bytes(&self) -> Option<u64> {
        let (counted, total) = (self.counted_bytes(), self.total_bytes());
        (format_bytes(counted) != format_bytes(total)).then_some(counted - total)
    }

    /// Bytes that are certainly in leaves of this size: the count less its possible excess; or the bytes taken out of the next
    /// larger leaves, less the count of smaller ones.
    pub fn certain(&self, leaf: PageSize) -> u64 {
        let too_high = self.counted_bytes() - self.total_bytes();
        let at_boot = self.boot_bytes.get(&leaf).copied().unwrap_or_else(|| self.of(leaf));
        let by_count = self.of(leaf).saturating_sub(too_high.min(at_boot));
        let larger = self.bytes.keys().find(|size| **size > leaf);
        let split = larger.and_then(|larger| self.split_bytes.get(larger)).copied().unwrap_or(0);
        by_count.max(split.saturating_sub(self.below(leaf))).min(self.total_bytes())
    }

    /// Upper bound of the bytes in leaves of this size; bytes taken out of such leaves are excluded.
    pub fn possible(&self, leaf: PageSize) -> u64 {
        let split = self.split_bytes.range(..=leaf).map(|(_, bytes)| *bytes).max().unwrap_or(0);
        self.of(leaf).min(self.total_bytes().saturating_sub(split))
    }

    /// Records that `bytes` of memory were certainly taken out of leaves of this size.
    pub fn record_split(&mut self, leaf: PageSize, bytes: u64) {
        let known = self.split_bytes.entry(leaf).or_default();
        *known = bytes.max(*known);
    }

    /// Counted bytes in leaves of exactly this size.
    pub fn of(&self, leaf: PageSize) -> u64 {
        self.bytes.get(&leaf).copied().unwrap_or(0)
    }

    /// Counted bytes in larger leaves.
    pub fn above(&self, leaf: PageSize) -> u64 {
        self.bytes.iter().filter(|(size, _)| **size > leaf).map(|(_, bytes)| bytes).sum()
    }

    /// Counted bytes in smaller leaves.
    pub fn below(&self, leaf: PageSize) -> u64 {
        self.bytes.iter().filter(|(size, _)| **size < leaf).map(|(_, bytes)| bytes).sum()
    }

    /// The share of the direct map that is certainly in leaves of exactly this size.
    pub fn ratio(&self, leaf: PageSize) -> f64 {
        self.certain(leaf) as f64 / self.total_bytes().max(1) as f64
    }

    /// The leaf size that certainly maps nine tenths ([`Verdict::HELD`]), if there is one.
    pub fn dominant(&self) -> Option<PageSize> {
        self.bytes.keys().copied().find(|leaf| self.ratio(*leaf) >= Verdict::HELD)
    }

    /// Lower bound of the bytes that are in leaves of the same size as before.
    pub fn unchanged_bytes(&self, before: &Leaves) -> u64 {
        let kept: u64 = self.bytes.iter().map(|(leaf, bytes)| (*bytes).min(before.of(*leaf))).sum();
        kept.min(self.total_bytes())
    }

    /// The share of the direct map in leaves of exactly this size, as text: the range from certain to possible.
    pub fn share(&self, leaf: PageSize) -> String {
        let percent = |bytes: u64| format!("{:.1}", bytes as f64 * 100.0 / self.total_bytes().max(1) as f64);
        let (least, most) = (percent(self.certain(leaf)), percent(self.possible(leaf)));
        if least == most { format!("{least} %") } else { format!("{least} to {most} %") }
    }
}
