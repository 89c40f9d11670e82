//! The process that runs, and its parents, which wait for it.

use super::pages::Pages;
use super::slot::Slots;

/// Processes of which each waits for the one that it forked, at most: as many as tags tell apart.
pub const MOST_PROCESSES: usize = 1 << (u64::BITS - TAG_SHIFT);
/// Bits of an address that tell processes apart in TLBs and walk caches (PCID of x86, ASID of Arm and RISC-V): no user
/// address has them. Of processes that live at the same time each waits for the next, so the number of those that wait
/// tells them apart; what a process had is dropped when it ends.
pub(super) const TAG_SHIFT: u32 = 58;

/// The process that runs, and those that wait for it or for one of these.
#[derive(Default)]
pub(super) struct Lineage {
    /// The process that runs; its address space may be its parent's.
    pub(super) process: u32,
    /// What tells its addresses apart in TLBs.
    pub(super) tag: u64,
    /// Its pages.
    pub(super) own: Pages,
    /// Its parents, the first process first.
    pub(super) waiting: Vec<Waiting>,
    /// Processes of which there is no trace.
    pub(super) missed_forks: u64,
    /// Touched pages of all of them.
    pub(super) touched_pages: u64,
    pub(super) touched_peak_pages: u64,
}

/// A process that waits for one that it forked.
pub(super) struct Waiting {
    pub(super) process: u32,
    tag: u64,
    pages: Pages,
    /// What the model's time was when it forked.
    since: u64,
}

/// A process that has ended.
pub(super) struct Ended {
    pub(super) process: u32,
    pub(super) tag: u64,
    pub(super) pages: Pages,
}

impl Lineage {
    /// Whether the running process has its parent's memory.
    pub(super) fn shares(&self) -> bool {
        self.waiting.last().is_some_and(|parent| parent.process == self.process)
    }

    /// Goes on as a process that was forked; `shares` if its memory is its parent's.
    pub(super) fn enter(&mut self, process: u32, shares: bool, own: Pages) {
        let since = own.began_instructions;
        let pages = std::mem::replace(&mut self.own, own);
        self.waiting.push(Waiting { process: self.process, tag: self.tag, pages, since });
        if !shares {
            self.tag = (self.waiting.len() as u64) << TAG_SHIFT;
        }
        self.process = process;
    }

    /// Goes on as the same process in memory of its own, `process`, in which it has touched nothing: what it had is its parent's
    /// where it shared that.
    pub(super) fn exec(&mut self, process: u32, now: u64) {
        let shares = self.shares();
        let before = std::mem::replace(&mut self.own, Pages::of_program(now));
        match self.waiting.last_mut().filter(|_| shares) {
            Some(parent) => {
                parent.pages.touched = before.touched;
                // Its faults and calls were its parent's.
                parent.pages.slots.iter_mut().for_each(Slots::forget_all);
                self.tag = (self.waiting.len() as u64) << TAG_SHIFT;
            }
            None => self.touched_pages -= before.touched.len() as u64,
        }
        self.process = process;
    }

    /// Goes on as the parent; what has ended.
    pub(super) fn leave(&mut self, now: u64) -> Option<Ended> {
        let parent = self.waiting.pop()?;
        let pages = std::mem::replace(&mut self.own, parent.pages);
        let ended = Ended { process: self.process, tag: self.tag, pages };
        let taken = now.saturating_sub(parent.since);
        self.own.began_instructions = self.own.began_instructions.saturating_add(taken);
        (self.process, self.tag) = (parent.process, parent.tag);
        Some(ended)
    }

    pub(super) fn count_touched(&mut self, pages: u64) {
        self.touched_pages += pages;
        self.touched_peak_pages = self.touched_peak_pages.max(self.touched_pages);
    }

    /// Notes that the running process has touched a page, which is mapped.
    pub(super) fn note_touched(&mut self, page: u64) {
        if self.own.touched.insert(page) {
            self.count_touched(1);
        }
    }
}
