//! The process that runs, and the others.

use std::collections::BTreeMap;

use super::pages::Pages;
use super::slot::Slots;

/// Processes that can live at the same time: as many as tags tell apart.
pub const MOST_PROCESSES: usize = 1 << (u64::BITS - TAG_SHIFT);
/// Bits of an address that tell processes apart in TLBs and walk caches (PCID of x86, ASID of Arm and RISC-V): no user
/// address has them. What a process had is dropped when it ends, and the next has its tag.
pub(super) const TAG_SHIFT: u32 = 58;

/// The process that runs, and those that have not ended.
#[derive(Default)]
pub(super) struct Lineage {
    /// Its number among the processes of the trace.
    pub(super) number: u32,
    /// Its address space, which may be its parent's.
    pub(super) process: u32,
    /// What tells its addresses apart in TLBs.
    pub(super) tag: u64,
    /// Its pages.
    pub(super) own: Pages,
    /// Its parent, if it has that one's memory.
    shared_with: Option<u32>,
    /// What the model's time was when it was forked.
    since: u64,
    /// All others that live, by their numbers.
    others: BTreeMap<u32, Member>,
    /// Processes of which there is no trace.
    pub(super) missed_forks: u64,
    /// Touched pages of all of them.
    pub(super) touched_pages: u64,
    pub(super) touched_peak_pages: u64,
}

/// A process that does not run now.
pub(super) struct Member {
    /// Its address space.
    pub(super) process: u32,
    pub(super) tag: u64,
    pub(super) pages: Pages,
    pub(super) shared_with: Option<u32>,
    pub(super) since: u64,
}

impl Lineage {
    /// Whether the running process has its parent's memory.
    pub(super) fn shares(&self) -> bool {
        self.shared_with.is_some()
    }

    /// Adds a process that was forked by the running one and has this address space.
    pub(super) fn fork(&mut self, number: u32, process: u32, shares: bool, pages: Pages) {
        let tag = if shares { self.tag } else { self.free_tag() };
        let (shared_with, since) = (shares.then_some(self.number), pages.began_instructions);
        self.others.insert(number, Member { process, tag, pages, shared_with, since });
    }

    /// The lowest tag that no process has.
    fn free_tag(&self) -> u64 {
        let is_used = |tag: u64| self.tag == tag || self.others.values().any(|other| other.tag == tag);
        let mut tags = (0..MOST_PROCESSES as u64).map(|index| index << TAG_SHIFT);
        tags.find(|tag| !is_used(*tag)).unwrap_or(0)
    }

    /// Goes on as another process, if there is one of this number.
    pub(super) fn switch(&mut self, number: u32) {
        if let Some(next) = self.others.remove(&number) {
            let pages = std::mem::replace(&mut self.own, next.pages);
            let (process, tag, shared_with, since) = (self.process, self.tag, self.shared_with, self.since);
            self.others.insert(self.number, Member { process, tag, pages, shared_with, since });
            (self.number, self.process, self.tag) = (number, next.process, next.tag);
            (self.shared_with, self.since) = (next.shared_with, next.since);
        }
    }

    /// Goes on as the same process in memory of its own, `process`, in which it has touched nothing: what it had is its parent's
    /// where it shared that.
    pub(super) fn exec(&mut self, process: u32, now: u64) {
        let before = std::mem::replace(&mut self.own, Pages::of_program(now));
        match self.shared_with.take().and_then(|parent| self.others.get_mut(&parent)) {
            Some(parent) => {
                parent.pages.touched = before.touched;
                // Its faults and calls were its parent's.
                parent.pages.slots.iter_mut().for_each(Slots::forget_all);
                self.tag = self.free_tag();
            }
            None => self.touched_pages -= before.touched.len() as u64,
        }
        self.process = process;
    }

    /// Takes out a process that is not running.
    pub(super) fn remove(&mut self, number: u32) -> Option<Member> {
        self.others.remove(&number)
    }

    pub(super) fn count_touched(&mut self, pages: u64) {
        self.touched_pages += pages;
        self.touched_peak_pages = self.touched_peak_pages.max(self.touched_pages);
    }

    /// Notes that the running process has touched a page, which is mapped; `stored`: it has stored to it.
    pub(super) fn note_touched(&mut self, page: u64, stored: bool) {
        let before = self.own.has_stored_to(page);
        if self.own.touched.insert(page, before || stored).is_none() {
            self.count_touched(1);
        }
    }
}
