//! khugepaged: huge pages that are made later from small pages (mm/khugepaged.c), and smaller folios, which kernels
//! make since Linux 7.2 (`mthp_collapse`).
//!
//! Its time is based on `Kernel::instructions_per_s`. Simplifications: it scans VMAs by address and processes by
//! number, every present page counts as touched, and no memory is reclaimed to satisfy its allocations.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::Paged;
use super::places::is_memory;
use super::scan::{Place, count_again};
use super::swap_cache::CacheKey;
use super::vma::{Backing, Vma};
use crate::call::PROT_WRITE;
use crate::policy::{Granule, MIN_FOLIO_PAGES};

/// The state of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    present: u64,
    shared: u64,
    swapped: u64,
    is_huge: bool,
}

impl<F: Format> Paged<F> {
    /// Does all scans that are due when the program has executed `instructions` instructions.
    pub(super) fn scan_until(&mut self, instructions: u64) -> Result<(), SpaceError> {
        let Some(huge_bytes) = self.plan.scanned_bytes(&self.kernel) else { return Ok(()) };
        if self.plan.mechanism.disable_thp || self.kernel.khugepaged.pages_to_scan == Some(0) {
            return Ok(());
        }
        let due = self.khugepaged.due(instructions, &self.kernel);
        self.scan(due, huge_bytes)?;
        self.memory.count_held(&mut self.costs);
        Ok(())
    }

    /// Scans `times` times. When scans change nothing and return to the position where one of them began, further scans
    /// would repeat the same work. They are then only counted (the cycle is detected with Brent's algorithm, 1980).
    fn scan(&mut self, times: u64, huge_bytes: u64) -> Result<(), SpaceError> {
        let (mut left, mut mark, mut since_mark) = (times, self.khugepaged.mark(&self.costs), 0);
        let (mut strides, mut most_strides) = (0, 1);
        while left > 0 {
            let mut scans = self.pass_over_empty(left, huge_bytes)?;
            if scans == 0 {
                self.scan_once(huge_bytes)?;
                scans = 1;
            }
            (left, since_mark, strides) = (left - scans, since_mark + scans, strides + 1);
            let now = self.khugepaged.mark(&self.costs);
            if now.collapses != mark.collapses {
                (mark, since_mark, strides, most_strides) = (now, 0, 0, 1);
            } else if now.at == mark.at {
                count_again(&mut self.costs, mark, now, left / since_mark);
                left %= since_mark;
                (mark, since_mark, strides, most_strides) = (self.khugepaged.mark(&self.costs), 0, 0, 1);
            } else if strides == most_strides {
                (mark, since_mark, strides, most_strides) = (now, 0, 0, 2 * most_strides);
            }
        }
        Ok(())
    }

    /// Does up to `most` scans at once, as far as they only meet windows of which nothing is mapped. Returns how many it did.
    fn pass_over_empty(&mut self, most: u64, huge_bytes: u64) -> Result<u64, SpaceError> {
        let (running, Place { process, va }) = (self.processes.number, self.khugepaged.at);
        if !self.processes.enter(process, &mut self.costs) {
            return Ok(0);
        }
        let mut scans = 0;
        if let Some((window, vma)) = self.next_window(va, huge_bytes) {
            let each = self.windows_of_a_scan(huge_bytes);
            scans = (self.empty_windows(window, huge_bytes, vma)? / each).min(most);
            if scans > 0 {
                self.khugepaged.at.va = window + scans * each * huge_bytes;
                self.costs.scanned_pages =
                    self.costs.scanned_pages.saturating_add(scans * each * (huge_bytes / self.base));
            }
        }
        self.processes.enter(running, &mut self.costs);
        Ok(scans)
    }

    /// Number of windows scanned before it sleeps.
    fn windows_of_a_scan(&self, huge_bytes: u64) -> u64 {
        let pages = huge_bytes / self.base;
        self.kernel.khugepaged.scans(pages).div_ceil(pages)
    }

    /// Scans `pages_to_scan` pages, or until it has passed the end of all processes twice. So if there is little
    /// memory, some of it is scanned twice (`khugepaged_do_scan`).
    fn scan_once(&mut self, huge_bytes: u64) -> Result<(), SpaceError> {
        let running = self.processes.number;
        let pages = huge_bytes / self.base;
        let mut left = self.windows_of_a_scan(huge_bytes);
        let mut passes = 0;
        while left > 0 && passes < 2 {
            let Place { process, va } = self.khugepaged.at;
            let next =
                if self.processes.enter(process, &mut self.costs) { self.next_window(va, huge_bytes) } else { None };
            let Some((window, vma)) = next else {
                let (process, is_first) = self.processes.after(process);
                self.khugepaged.at = Place { process, va: 0 };
                passes += u32::from(is_first);
                continue;
            };
            // Windows of which nothing is mapped are skipped all at once.
            let windows = self.empty_windows(window, huge_bytes, vma)?.min(left);
            if windows == 0 {
                match self.plan.granule {
                    Granule::Mthp(bytes) => self.make_folios(window, huge_bytes, bytes, vma)?,
                    _ => self.look(window, huge_bytes, vma)?,
                }
            }
            let windows = windows.max(1);
            self.khugepaged.at.va = window + windows * huge_bytes;
            self.costs.scanned_pages = self.costs.scanned_pages.saturating_add(windows * pages);
            left -= windows;
        }
        self.processes.enter(running, &mut self.costs);
        Ok(())
    }

    /// The number of windows, from one on, before the first in the same VMA that has anything mapped.
    fn empty_windows(&self, window: u64, bytes: u64, vma: Vma) -> Result<u64, Error> {
        let end = vma.end & !(bytes - 1);
        let first = self.processes.running.first_mapped(window, end)?.unwrap_or(end);
        let first_swapped = self.processes.running.swapped.range(window..end).next().map_or(end, |(page, _)| *page);
        Ok((first.min(first_swapped) - window) / bytes)
    }

    /// The first whole window of a VMA, at or after an address, that may be huge.
    fn next_window(&self, va: u64, bytes: u64) -> Option<(u64, Vma)> {
        let mut at = va;
        loop {
            let (begin, vma) =
                self.processes.running.vmas.find(at).or_else(|| self.processes.running.vmas.after(at))?;
            let window = begin.max(at).checked_next_multiple_of(bytes)?;
            let may = matches!(vma.backing, Backing::Anonymous | Backing::Inferred) && self.may_be_huge(vma);
            if may && window.checked_add(bytes).is_some_and(|end| end <= vma.end) {
                return Some((window, vma));
            }
            at = vma.end;
        }
    }

    /// Collapses a window if enough of it is present (`hpage_collapse_scan_pmd`).
    fn look(&mut self, window: u64, bytes: u64, vma: Vma) -> Result<(), SpaceError> {
        let parts = self.parts(window, window + bytes)?;
        let swapped: Vec<u64> =
            self.processes.running.swapped.range(window..window + bytes).map(|(_, slot)| *slot).collect();
        let mut seen = Window { swapped: swapped.len() as u64, ..Window::default() };
        for part in &parts {
            seen.is_huge |= part.leaf_bytes >= bytes;
            // Pages of the zero page count as missing.
            if is_memory(part.pa) {
                seen.present += part.bytes / self.base;
                seen.shared += if self.memory.folios.sharers(part.pa) > 1 { part.bytes / self.base } else { 0 };
            }
        }
        let pages = bytes / self.base;
        let missing = pages - seen.present - seen.swapped;
        let enough = seen.present > 0 && self.kernel.khugepaged.takes(pages, missing, seen.shared, seen.swapped);
        if seen.is_huge || !enough || vma.protection & PROT_WRITE == 0 {
            return Ok(());
        }
        let is_read = |slot: &&u64| self.in_memory(CacheKey::Slot(**slot)).is_none();
        let read = swapped.iter().filter(is_read).count() as u64;
        if self.collapse(window, bytes, vma, Sizes::up_to(bytes), seen.present + seen.swapped)? {
            self.costs.swap_faults += read;
        }
        Ok(())
    }

    /// Makes folios of a window's parts: of the largest enabled size first, if enough of it is present, otherwise of
    /// its halves (`mthp_collapse`). Shared and swapped memory is not touched, and existing folios of the size are left
    /// unchanged.
    fn make_folios(&mut self, begin: u64, bytes: u64, most: u64, vma: Vma) -> Result<(), SpaceError> {
        if vma.protection & PROT_WRITE == 0 || bytes < MIN_FOLIO_PAGES * self.base {
            return Ok(());
        }
        if bytes == most || bytes < most && self.kernel.smaller_folios.contains(&bytes) {
            let pmd_pages = self.plan.pmd_bytes.unwrap_or(bytes) / self.base;
            let seen = self.folio_window(begin, bytes)?;
            let least = self.kernel.khugepaged.least_present(pmd_pages, bytes / self.base);
            let sizes = Sizes { largest_bytes: self.base, contiguous: true };
            let is_alone = seen.shared == 0 && seen.swapped == 0;
            let is_done = seen.is_huge
                || is_alone && seen.present >= least && self.collapse(begin, bytes, vma, sizes, seen.present)?;
            if is_done {
                return Ok(());
            }
        }
        let half = bytes / 2;
        self.make_folios(begin, half, most, vma)?;
        self.make_folios(begin + half, half, most, vma)
    }

    /// The state of the memory where a folio could be made; `is_huge` if there is already one of this size or larger.
    fn folio_window(&self, begin: u64, bytes: u64) -> Result<Window, SpaceError> {
        let swapped = self.processes.running.swapped.range(begin..begin + bytes).count() as u64;
        let mut seen = Window { swapped, ..Window::default() };
        for part in self.parts(begin, begin + bytes)?.iter().filter(|part| is_memory(part.pa)) {
            seen.present += part.bytes / self.base;
            seen.shared += u64::from(self.memory.folios.sharers(part.pa) > 1);
            seen.is_huge |= self.memory.folios.find(part.pa).is_some_and(|(_, folio)| folio.bytes >= bytes);
        }
        Ok(seen)
    }

    /// Replaces a window, of which `present` pages are present, by one folio; `false` if there is no such block of memory.
    fn collapse(&mut self, window: u64, bytes: u64, vma: Vma, sizes: Sizes, present: u64) -> Result<bool, SpaceError> {
        let Some(pa) = self.memory.buddy.allocate(bytes) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let missing_bytes = bytes - present * self.base;
        self.drop_range(window, window + bytes)?;
        let attributes = self.attributes(vma.protection, true);
        self.map(window, pa, bytes, sizes, attributes)?;
        self.memory.folios.add(pa, bytes, self.processes.number, window, false);
        self.costs.collapses += 1;
        self.costs.collapse_copied_bytes += present * self.base;
        self.costs.zeroed_bytes += missing_bytes;
        self.costs.collapse_zeroed_bytes += missing_bytes;
        Ok(true)
    }
}
