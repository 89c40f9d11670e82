//! khugepaged: collapses small pages into huge pages (mm/khugepaged.c) and, since Linux 7.2, into smaller folios
//! (`mthp_collapse`). A program can also request a collapse (`madvise_collapse`), which happens at once, even in memory without
//! advice, and without khugepaged's limits.
//!
//! The time at which khugepaged runs follows from `Kernel::instructions_per_s`. Simplifications: it scans VMAs by address and
//! processes by number, every present page counts as touched, and its allocations never reclaim memory.

use paging::{Error, Format, Sizes};

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::physical_layout::is_memory;
use super::scan::{ScanPosition, count_repeats};
use super::swap_cache::CacheKey;
use super::vma::{Advice, Backing, Vma};
use crate::call::PROT_WRITE;
use crate::policy::{MIN_FOLIO_PAGES, MappingUnit};

/// Number of pages of a window in each state, and whether the window needs no collapse.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    present: u64,
    shared: u64,
    swapped: u64,
    is_huge: bool,
}

impl<F: Format> AddressSpaces<F> {
    /// Runs all scans that are due when the program has executed `instructions` instructions.
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

    /// Scans `times` times. Once scans have changed nothing and are back at an earlier position, further scans would repeat
    /// the same work, so they are only counted. Brent's algorithm (1980) detects the cycle.
    fn scan(&mut self, times: u64, huge_bytes: u64) -> Result<(), SpaceError> {
        let (mut left, mut mark, mut since_mark) = (times, self.khugepaged.mark(&self.costs), 0);
        let (mut strides, mut max_strides) = (0, 1);
        while left > 0 {
            let mut scans = self.skip_empty_windows(left, huge_bytes)?;
            if scans == 0 {
                self.scan_once(huge_bytes)?;
                scans = 1;
            }
            (left, since_mark, strides) = (left - scans, since_mark + scans, strides + 1);
            let now = self.khugepaged.mark(&self.costs);
            if now.collapses != mark.collapses {
                (mark, since_mark, strides, max_strides) = (now, 0, 0, 1);
            } else if now.at == mark.at {
                count_repeats(&mut self.costs, mark, now, left / since_mark);
                left %= since_mark;
                (mark, since_mark, strides, max_strides) = (self.khugepaged.mark(&self.costs), 0, 0, 1);
            } else if strides == max_strides {
                (mark, since_mark, strides, max_strides) = (now, 0, 0, 2 * max_strides);
            }
        }
        Ok(())
    }

    /// Does up to `max_scans` scans at once, as long as they meet only empty windows. Returns their number.
    fn skip_empty_windows(&mut self, max_scans: u64, huge_bytes: u64) -> Result<u64, SpaceError> {
        let (running, ScanPosition { process, va }) = (self.processes.number, self.khugepaged.at);
        if !self.processes.enter(process, &mut self.costs) {
            return Ok(0);
        }
        let mut scans = 0;
        if let Some((window, vma)) = self.next_window(va, huge_bytes) {
            let windows_per_scan = self.windows_per_scan(huge_bytes);
            scans = (self.empty_windows(window, huge_bytes, vma)? / windows_per_scan).min(max_scans);
            if scans > 0 {
                self.khugepaged.at.va = window + scans * windows_per_scan * huge_bytes;
                self.costs.scanned_pages =
                    self.costs.scanned_pages.saturating_add(scans * windows_per_scan * (huge_bytes / self.base));
            }
        }
        self.processes.enter(running, &mut self.costs);
        Ok(scans)
    }

    /// Number of windows that khugepaged scans before it sleeps.
    fn windows_per_scan(&self, huge_bytes: u64) -> u64 {
        let pages = huge_bytes / self.base;
        self.kernel.khugepaged.pages_per_scan(pages).div_ceil(pages)
    }

    /// Scans `pages_to_scan` pages, or until it has passed the end of the last process twice (`khugepaged_do_scan`). If the
    /// processes have little memory, a part of it is scanned twice.
    fn scan_once(&mut self, huge_bytes: u64) -> Result<(), SpaceError> {
        let running = self.processes.number;
        let pages = huge_bytes / self.base;
        let mut left = self.windows_per_scan(huge_bytes);
        let mut passes = 0;
        while left > 0 && passes < 2 {
            let ScanPosition { process, va } = self.khugepaged.at;
            let next =
                if self.processes.enter(process, &mut self.costs) { self.next_window(va, huge_bytes) } else { None };
            let Some((window, vma)) = next else {
                let (process, is_first) = self.processes.after(process);
                self.khugepaged.at = ScanPosition { process, va: 0 };
                passes += u32::from(is_first);
                continue;
            };
            // Skips all consecutive empty windows at once.
            let windows = self.empty_windows(window, huge_bytes, vma)?.min(left);
            if windows == 0 {
                match self.plan.mapping_unit {
                    MappingUnit::Mthp(bytes) => self.collapse_to_folios(window, huge_bytes, bytes, vma)?,
                    _ => self.scan_thp_window(window, huge_bytes, vma)?,
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

    /// The number of consecutive empty windows of a VMA, beginning with `window`: nothing is mapped or in swap there.
    fn empty_windows(&self, window: u64, bytes: u64, vma: Vma) -> Result<u64, Error> {
        let end = vma.end & !(bytes - 1);
        let first = self.processes.running.first_mapped(window, end)?.unwrap_or(end);
        let first_swapped = self.processes.running.swapped.range(window..end).next().map_or(end, |(page, _)| *page);
        Ok((first.min(first_swapped) - window) / bytes)
    }

    /// The first window at or after an address that is completely inside a VMA with large folios.
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

    /// Collapses a window into a huge page, or else into the enabled smaller folios, if khugepaged makes them.
    fn scan_thp_window(&mut self, window: u64, bytes: u64, vma: Vma) -> Result<(), SpaceError> {
        let is_huge = self.scan_window(window, bytes, vma)?;
        if is_huge || !self.kernel.khugepaged.makes_folios || self.plan.pte_mapped_folios(&self.kernel).is_empty() {
            return Ok(());
        }
        self.collapse_halves(window, bytes, bytes, vma)
    }

    /// Collapses a window if enough of it is present (`hpage_collapse_scan_pmd`). Returns whether a huge page maps it.
    fn scan_window(&mut self, window: u64, bytes: u64, vma: Vma) -> Result<bool, SpaceError> {
        let parts = self.parts(window, window + bytes)?;
        let swapped: Vec<u64> =
            self.processes.running.swapped.range(window..window + bytes).map(|(_, slot)| *slot).collect();
        let mut seen = Window { swapped: swapped.len() as u64, ..Window::default() };
        for part in &parts {
            seen.is_huge |= part.leaf_bytes >= bytes;
            // Entries that map the zero page count as missing.
            if is_memory(part.pa) {
                seen.present += part.bytes / self.base;
                seen.shared += if self.memory.folios.sharers(part.pa) > 1 { part.bytes / self.base } else { 0 };
            }
        }
        let pages = bytes / self.base;
        let missing = pages - seen.present - seen.swapped;
        let enough = seen.present > 0 && self.kernel.khugepaged.can_collapse(pages, missing, seen.shared, seen.swapped);
        if seen.is_huge || !enough || vma.protection & PROT_WRITE == 0 {
            return Ok(seen.is_huge);
        }
        let needs_read = |slot: &&u64| self.in_memory(CacheKey::Slot(**slot)).is_none();
        let reads = swapped.iter().filter(needs_read).count() as u64;
        let is_collapsed = self.collapse(window, bytes, vma, Sizes::up_to(bytes), seen.present + seen.swapped)?;
        if is_collapsed {
            self.costs.swap_faults += reads;
        }
        Ok(is_collapsed)
    }

    /// Applies MADV_COLLAPSE: collapses all windows of a range in which memory is present.
    pub(super) fn advise_collapse(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        let process = &self.processes.running;
        let Some(bytes) =
            process.rules.huge_bytes.filter(|_| !self.plan.mechanism.disable_thp && !process.thp_disabled)
        else {
            return Ok(());
        };
        for (from, vma) in process.vmas.within(begin, end) {
            let may = vma.backing.is_private_memory() && vma.advice != Advice::NoHuge;
            let windows = (from.next_multiple_of(bytes)..vma.end & !(bytes - 1)).step_by(bytes as usize);
            for window in windows.filter(|_| may) {
                let parts = self.parts(window, window + bytes)?;
                let present = parts.iter().filter(|part| is_memory(part.pa)).map(|part| part.bytes / self.base).sum();
                let is_huge = parts.iter().any(|part| part.leaf_bytes >= bytes);
                let is_swapped = self.processes.running.is_swapped(window, window + bytes);
                if present > 0 && !is_huge && !is_swapped {
                    self.collapse(window, bytes, vma, Sizes::up_to(bytes), present)?;
                }
            }
        }
        Ok(())
    }

    /// Collapses a window into one folio of an enabled size, if enough pages are present; otherwise tries its halves
    /// (`mthp_collapse`). Does not touch shared or swapped memory, and keeps existing folios of the size or larger.
    fn collapse_to_folios(&mut self, begin: u64, bytes: u64, max_bytes: u64, vma: Vma) -> Result<(), SpaceError> {
        if vma.protection & PROT_WRITE == 0 || bytes < MIN_FOLIO_PAGES * self.base {
            return Ok(());
        }
        if bytes == max_bytes || bytes < max_bytes && self.kernel.smaller_folios.contains(&bytes) {
            let pmd_pages = self.plan.pmd_bytes.unwrap_or(bytes) / self.base;
            let seen = self.folio_window(begin, bytes)?;
            let min_present = self.kernel.khugepaged.min_present(pmd_pages, bytes / self.base);
            let sizes = Sizes { largest_bytes: self.base, contiguous: true };
            let is_exclusive = seen.shared == 0 && seen.swapped == 0;
            let is_done = seen.is_huge
                || is_exclusive
                    && seen.present >= min_present
                    && self.collapse(begin, bytes, vma, sizes, seen.present)?;
            if is_done {
                return Ok(());
            }
        }
        self.collapse_halves(begin, bytes, max_bytes, vma)
    }

    fn collapse_halves(&mut self, begin: u64, bytes: u64, max_bytes: u64, vma: Vma) -> Result<(), SpaceError> {
        let half = bytes / 2;
        self.collapse_to_folios(begin, half, max_bytes, vma)?;
        self.collapse_to_folios(begin + half, half, max_bytes, vma)
    }

    /// The state of the memory that a folio of this size would replace; `is_huge` is set if any of the memory already belongs
    /// to a folio of this size or larger.
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

    /// Replaces a window, in which `present` pages are present, by one folio. Returns `false` if no large enough block is
    /// free.
    fn collapse(&mut self, window: u64, bytes: u64, vma: Vma, sizes: Sizes, present: u64) -> Result<bool, SpaceError> {
        let Some(pa) = self.memory.buddy.allocate(bytes) else {
            self.costs.allocation_fallbacks += 1;
            return Ok(false);
        };
        let missing_bytes = bytes - present * self.base;
        let stored = self.stored_pages(window, bytes)?;
        self.drop_range(window, window + bytes)?;
        let attributes = self.attributes(vma.protection, true);
        self.map(window, pa, bytes, sizes, attributes)?;
        self.memory.folios.add(pa, bytes, self.processes.number, window, false);
        stored.into_iter().for_each(|page| self.memory.folios.note_store(pa + (page - window)));
        self.costs.collapses += 1;
        self.costs.collapse_copied_bytes += present * self.base;
        self.costs.zeroed_bytes += missing_bytes;
        self.costs.collapse_zeroed_bytes += missing_bytes;
        Ok(true)
    }

    /// The pages of a window that a process has stored to.
    fn stored_pages(&self, window: u64, bytes: u64) -> Result<Vec<u64>, Error> {
        let parts = self.parts(window, window + bytes)?.into_iter().filter(|part| is_memory(part.pa));
        let pages = parts
            .flat_map(|part| (0..part.bytes).step_by(self.base as usize).map(move |at| (part.va + at, part.pa + at)));
        Ok(pages.filter(|(_, pa)| self.memory.folios.is_stored_to(*pa)).map(|(va, _)| va).collect())
    }
}
