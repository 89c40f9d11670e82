//! khugepaged's clock: the position and the time of its next scan.

use crate::costs::Costs;
use crate::kernel::Kernel;

/// The minimum sleep, which is one millisecond, the unit of `scan_sleep_millisecs`.
const MIN_SLEEP_S: f64 = 0.001;

/// The position and the time of the next scan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScanClock {
    /// Number of executed instructions at which khugepaged wakes next.
    next_wake: u64,
    pub(super) at: ScanPosition,
}

/// A position in the memory of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanPosition {
    pub(super) process: u32,
    pub(super) va: u64,
}

/// A position of the scan, with the counts at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: ScanPosition,
    pub(super) collapses: u64,
    scanned_pages: u64,
    allocation_fallbacks: u64,
}

impl ScanClock {
    /// The number of scans that are due when the program has executed `instructions` instructions. khugepaged first wakes
    /// after one sleep.
    pub(super) fn due(&mut self, instructions: u64, kernel: &Kernel) -> u64 {
        let sleep_s = kernel.khugepaged.scan_sleep_s.max(MIN_SLEEP_S);
        let sleep = (sleep_s * kernel.instructions_per_s).max(1.0) as u64;
        let first = self.next_wake.max(sleep);
        let Some(since) = instructions.checked_sub(first) else { return 0 };
        let due = since / sleep + 1;
        self.next_wake = first.saturating_add(due.saturating_mul(sleep));
        due
    }

    pub(super) fn mark(&self, costs: &Costs) -> Mark {
        Mark {
            at: self.at,
            collapses: costs.collapses,
            scanned_pages: costs.scanned_pages,
            allocation_fallbacks: costs.allocation_fallbacks,
        }
    }
}

/// Adds the difference between the counts of two marks once more, `times` times.
pub(super) fn count_repeats(costs: &mut Costs, from: Mark, to: Mark, times: u64) {
    let again = |counted: u64, from: u64, to: u64| counted.saturating_add((to - from).saturating_mul(times));
    costs.scanned_pages = again(costs.scanned_pages, from.scanned_pages, to.scanned_pages);
    costs.allocation_fallbacks = again(costs.allocation_fallbacks, from.allocation_fallbacks, to.allocation_fallbacks);
}
