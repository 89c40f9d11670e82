//! khugepaged's clock: where its scan goes on, and when.

use super::cost::Costs;
use crate::kernel::Kernel;

/// It sleeps no shorter: `scan_sleep_millisecs` counts in these.
const LEAST_SLEEP_S: f64 = 0.001;

/// Where the scan goes on, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    /// Instructions at which it wakes.
    next: u64,
    pub(super) at: Place,
}

/// A place in the memory of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) process: u32,
    pub(super) va: u64,
}

/// What was counted when a scan was at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: Place,
    pub(super) collapses: u64,
    scanned_pages: u64,
    allocation_fallbacks: u64,
}

impl Scan {
    /// How many scans are due when the program has executed so many instructions. It first wakes when it has slept once.
    pub(super) fn due(&mut self, instructions: u64, kernel: &Kernel) -> u64 {
        let sleep_s = kernel.khugepaged.scan_sleep_s.max(LEAST_SLEEP_S);
        let sleep = (sleep_s * kernel.instructions_per_s).max(1.0) as u64;
        let first = self.next.max(sleep);
        let Some(since) = instructions.checked_sub(first) else { return 0 };
        let due = since / sleep + 1;
        self.next = first.saturating_add(due.saturating_mul(sleep));
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

/// Counts so many times what was counted between two marks.
pub(super) fn count_again(costs: &mut Costs, from: Mark, to: Mark, times: u64) {
    let again = |counted: u64, from: u64, to: u64| counted.saturating_add((to - from).saturating_mul(times));
    costs.scanned_pages = again(costs.scanned_pages, from.scanned_pages, to.scanned_pages);
    costs.allocation_fallbacks = again(costs.allocation_fallbacks, from.allocation_fallbacks, to.allocation_fallbacks);
}
