//! khugepaged: huge pages that are made later, out of what small pages have become (mm/khugepaged.c).
//!
//! Its time is that of [`super::Kernel::instructions_per_s`]. What is simplified: it scans VMAs by their addresses and processes by
//! their numbers, every page that is there counts as touched, and memory that it needs is never reclaimed for it.

use paging::{Format, Sizes};

use super::event::PROT_WRITE;
use super::*;

/// Where the scan goes on, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    /// Instructions at which it wakes.
    next: u64,
    process: u32,
    va: u64,
}

/// What a window looks like.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    present: u64,
    shared: u64,
    swapped: u64,
    is_huge: bool,
}

impl<F: Format> Paged<F> {
    /// Does all scans that are due when the program has executed so many instructions.
    pub(super) fn scan_until(&mut self, instructions: u64) -> Result<(), SpaceError> {
        let Some(huge_bytes) = self.huge_bytes() else { return Ok(()) };
        let settings = self.kernel.khugepaged;
        let sleep = (settings.scan_sleep_s * self.kernel.instructions_per_s).max(1.0) as u64;
        if self.no_huge || settings.pages_to_scan == Some(0) {
            return Ok(());
        }
        // It first wakes when it has slept once.
        self.khugepaged.next = self.khugepaged.next.max(sleep);
        while self.khugepaged.next <= instructions {
            self.khugepaged.next += sleep;
            self.scan_once(huge_bytes)?;
        }
        Ok(())
    }

    /// Looks at `pages_to_scan` pages, and at none twice.
    fn scan_once(&mut self, huge_bytes: u64) -> Result<(), SpaceError> {
        let running = self.number;
        let pages = huge_bytes / self.base;
        let mut left = self.kernel.khugepaged.scans(pages);
        let mut passes = 0;
        while left > 0 && passes < 2 {
            let Scan { process, va, .. } = self.khugepaged;
            if !self.enter_process(process) {
                passes += u32::from(self.next_process());
                continue;
            }
            match self.next_window(va, huge_bytes) {
                Some((window, vma)) => {
                    self.khugepaged.va = window + huge_bytes;
                    self.look(window, huge_bytes, vma)?;
                    self.costs.scanned_pages += pages;
                    left = left.saturating_sub(pages);
                }
                None => passes += u32::from(self.next_process()),
            }
        }
        self.enter_process(running);
        Ok(())
    }

    /// Goes on with the next process; whether that is the first again.
    fn next_process(&mut self) -> bool {
        self.khugepaged.va = 0;
        self.khugepaged.process = (self.khugepaged.process + 1) % self.processes.max(1);
        self.khugepaged.process == 0
    }

    /// The first whole window of a VMA at or behind an address that may be huge.
    fn next_window(&self, va: u64, bytes: u64) -> Option<(u64, Vma)> {
        let mut at = va;
        loop {
            let (begin, vma) = self.own.vmas.find(at).or_else(|| self.own.vmas.after(at))?;
            let window = begin.max(at).checked_next_multiple_of(bytes)?;
            let may = matches!(vma.backing, Backing::Anonymous | Backing::Inferred) && self.may_be_huge(vma);
            if may && window + bytes <= vma.end {
                return Some((window, vma));
            }
            at = vma.end;
        }
    }

    /// Collapses a window if enough of it is there (`hpage_collapse_scan_pmd`).
    fn look(&mut self, window: u64, bytes: u64, vma: Vma) -> Result<(), SpaceError> {
        let parts = self.parts(window, window + bytes)?;
        let mut seen =
            Window { swapped: self.own.swapped.range(window..window + bytes).count() as u64, ..Window::default() };
        for part in &parts {
            seen.is_huge |= part.leaf_bytes >= bytes;
            // Pages full of zeros count as missing.
            if part.pa < TABLES_PA {
                seen.present += part.bytes / self.base;
                seen.shared += if self.folios.sharers(part.pa) > 1 { part.bytes / self.base } else { 0 };
            }
        }
        let pages = bytes / self.base;
        let missing = pages - seen.present - seen.swapped;
        let enough = seen.present > 0 && self.kernel.khugepaged.takes(pages, missing, seen.shared, seen.swapped);
        if seen.is_huge || !enough || vma.protection & PROT_WRITE == 0 {
            return Ok(());
        }
        let Some(pa) = self.buddy.allocate(bytes) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(());
        };
        self.costs.swap_faults += seen.swapped;
        self.drop_range(window, window + bytes)?;
        let attributes = self.attributes(vma.protection, true);
        self.map(window, pa, bytes, Sizes::up_to(bytes), attributes)?;
        self.folios.add(pa, bytes, self.number, window, false);
        self.costs.collapses += 1;
        self.costs.collapse_copied_bytes += (seen.present + seen.swapped) * self.base;
        self.costs.zeroed_bytes += missing * self.base;
        Ok(())
    }
}
