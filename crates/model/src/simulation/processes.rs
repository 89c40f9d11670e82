//! The running process and the suspended ones.

use std::collections::BTreeMap;

use super::pages::Pages;
use super::slot::Slots;

/// Maximum number of processes at the same time: the number of tags.
pub const MAX_PROCESSES: usize = 1 << (u64::BITS - TAG_SHIFT);
/// The lowest bit of the tag that distinguishes processes in TLBs and walk caches (x86: PCID, Arm and RISC-V: ASID). User addresses
/// do not use these bits. When a process ends, its entries are dropped, and a later process reuses its tag.
pub(super) const TAG_SHIFT: u32 = 58;

/// The running process and the suspended processes: all that have not ended.
#[derive(Default)]
pub(super) struct Processes {
    /// The number of the running process in the trace.
    pub(super) number: u32,
    /// The number of its address space, which can be its parent's.
    pub(super) address_space: u32,
    /// The tag of its addresses in TLBs.
    pub(super) tag: u64,
    /// The pages of the running process.
    pub(super) running: Pages,
    /// The running process's parent, if the process shares the parent's memory.
    shared_with: Option<u32>,
    /// The model's time when the running process was forked.
    since: u64,
    /// All other processes, by number.
    suspended: BTreeMap<u32, Suspended>,
    /// Number of forked processes without a trace.
    pub(super) unrecorded_forks: u64,
    /// Number of touched pages of all processes that are still mapped.
    pub(super) touched_pages: u64,
    pub(super) touched_peak_pages: u64,
}

/// A process that is not running.
pub(super) struct Suspended {
    /// The number of its address space.
    pub(super) address_space: u32,
    pub(super) tag: u64,
    pub(super) pages: Pages,
    pub(super) shared_with: Option<u32>,
    pub(super) since: u64,
}

impl Processes {
    /// Whether the running process shares its parent's memory.
    pub(super) fn shares(&self) -> bool {
        self.shared_with.is_some()
    }

    /// Adds process `number`, which the running one has forked.
    pub(super) fn fork(&mut self, number: u32, address_space: u32, shares: bool, pages: Pages) {
        let tag = if shares { self.tag } else { self.free_tag() };
        let (shared_with, since) = (shares.then_some(self.number), pages.began_instructions);
        self.suspended.insert(number, Suspended { address_space, tag, pages, shared_with, since });
    }

    /// The lowest unused tag.
    fn free_tag(&self) -> u64 {
        let is_used = |tag: u64| self.tag == tag || self.suspended.values().any(|other| other.tag == tag);
        let mut tags = (0..MAX_PROCESSES as u64).map(|index| index << TAG_SHIFT);
        tags.find(|tag| !is_used(*tag)).unwrap_or(0)
    }

    /// Switches to another process, if there is one with this number.
    pub(super) fn switch(&mut self, number: u32) {
        if let Some(next) = self.suspended.remove(&number) {
            let pages = std::mem::replace(&mut self.running, next.pages);
            let (address_space, tag, shared_with, since) = (self.address_space, self.tag, self.shared_with, self.since);
            self.suspended.insert(self.number, Suspended { address_space, tag, pages, shared_with, since });
            (self.number, self.address_space, self.tag) = (number, next.address_space, next.tag);
            (self.shared_with, self.since) = (next.shared_with, next.since);
        }
    }

    /// Continues the running process in a new address space, in which it has touched nothing. If it shared its parent's memory, the
    /// parent gets the touched pages back.
    pub(super) fn exec(&mut self, address_space: u32, now: u64) {
        let before = std::mem::replace(&mut self.running, Pages::of_program(now));
        match self.shared_with.take().and_then(|parent| self.suspended.get_mut(&parent)) {
            Some(parent) => {
                parent.pages.touched = before.touched;
                // Faults and calls of the child may have changed the mappings of the parent.
                parent.pages.slots.iter_mut().for_each(Slots::reset_all);
                self.tag = self.free_tag();
            }
            None => self.touched_pages -= before.touched.len() as u64,
        }
        self.address_space = address_space;
    }

    /// Removes a process that is not running.
    pub(super) fn remove(&mut self, number: u32) -> Option<Suspended> {
        self.suspended.remove(&number)
    }

    pub(super) fn count_touched(&mut self, pages: u64) {
        self.touched_pages += pages;
        self.touched_peak_pages = self.touched_peak_pages.max(self.touched_pages);
    }

    /// Notes that the running process has touched a page, which is mapped. `stored` is `true` for a store.
    pub(super) fn note_touched(&mut self, page: u64, stored: bool) {
        let before = self.running.has_stored_to(page);
        if self.running.touched.insert(page, before || stored).is_none() {
            self.count_touched(1);
        }
    }
}
