//! Handles fork, execve and the end of processes.
//!
//! A process is known by its number in the trace. Its address space has a separate number, which [`Space`](crate::space::Space)
//! assigns, because a child of vfork runs in the address space of its parent and execve starts a new one.

use trace::PAGE_SHIFT;

use super::pages::{Pages, TouchedPages};
use super::processes::TAG_SHIFT;
use super::slot::Slots;
use super::state::Simulation;

impl Simulation {
    /// The running process forks process `number`, which does not run yet. The child gets a copy of the memory, or with `shares`
    /// the memory itself (`CLONE_VM`, as vfork does). In the second case, the caller must not run the parent before the child has
    /// ended or executed a program. At most [`MAX_PROCESSES`](super::MAX_PROCESSES) processes can exist at the same time.
    pub fn fork(&mut self, number: u32, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let forked = if shares { Ok(self.processes.address_space) } else { self.space.fork() };
        self.apply_invalidations();
        match forked {
            Ok(address_space) => {
                let touched = if shares {
                    std::mem::take(&mut self.processes.running.touched)
                } else {
                    self.inherited(address_space)
                };
                self.processes.fork(number, address_space, shares, Pages::of_forked(began_instructions, touched));
            }
            Err(error) => self.stopped = Some(error),
        }
    }

    /// Switches to another process.
    pub fn switch(&mut self, number: u32) {
        if self.stopped.is_none() {
            self.processes.switch(number);
            self.space.enter(self.processes.address_space);
            // Reclaim and khugepaged may have changed the memory of this process while another one ran.
            self.apply_invalidations();
        }
    }

    /// Gives the running process an empty address space after its execve. [`Simulation::event`] has processed the call itself.
    pub fn exec(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.now();
        match self.space.exec(self.processes.shares()) {
            Ok(address_space) => self.processes.exec(address_space, now),
            Err(error) => self.stopped = Some(error),
        }
    }

    /// Counts a child of the running process that has no trace, unless it shares the memory of the running process.
    pub fn note_unrecorded_fork(&mut self, shares: bool) {
        self.processes.unrecorded_forks += u64::from(!shares);
    }

    /// Ends process `number`, and continues with `next`, an ancestor that waited for it.
    pub fn end(&mut self, number: u32, next: u32) {
        if self.stopped.is_some() {
            return;
        }
        self.switch(number);
        let now = self.now();
        self.switch(next);
        let Some(ended) = self.processes.remove(number) else { return };
        // The time of the ancestor includes the time that it spent waiting.
        let waited = now.saturating_sub(ended.since.max(self.processes.running.executed()));
        self.processes.running.began_instructions = self.processes.running.began_instructions.saturating_add(waited);
        if ended.shared_with.is_some() {
            // The ended process ran in its parent's address space, and may have changed any mapping there.
            self.processes.running.touched = ended.pages.touched;
            self.processes.running.slots.iter_mut().for_each(Slots::reset_all);
            return;
        }
        self.processes.touched_pages -= ended.pages.touched.len() as u64;
        self.stopped = self.space.end(ended.address_space).err();
        let first = ended.tag >> PAGE_SHIFT;
        self.hardware.drop_pages(first, first + (1 << (TAG_SHIFT - PAGE_SHIFT)));
        self.apply_invalidations();
    }

    /// The model's time, in instructions: the instruction count of the thread of the running process that has executed most, plus
    /// the time when the process began and the time that it has waited for children. If the trace does not count instructions,
    /// the time is the number of accesses.
    pub(super) fn now(&self) -> u64 {
        match self.processes.running.executed() {
            0 => self.accesses,
            now => now,
        }
    }

    /// The touched pages of the running process that are also mapped in the address space of its new child.
    fn inherited(&mut self, child_space: u32) -> TouchedPages {
        self.space.enter(child_space);
        let is_mapped = |(page, _): &(u64, bool)| self.space.physical(page << PAGE_SHIFT).is_some();
        let touched = self.processes.running.touched.iter().map(|(page, stored)| (*page, *stored));
        let inherited: TouchedPages = touched.filter(is_mapped).collect();
        self.space.enter(self.processes.address_space);
        self.processes.count_touched(inherited.len() as u64);
        inherited
    }

    /// Notes the touched pages that mremap has moved to address `to`. `touched` has their page offsets in the moved range, and
    /// whether each was stored to ([`Pages::touched_in`]).
    pub(super) fn carry_touched(&mut self, touched: Vec<(u64, bool)>, to: u64) {
        for (page, stored) in touched {
            let page = (to >> PAGE_SHIFT) + page;
            if self.space.physical(page << PAGE_SHIFT).is_some() {
                self.processes.note_touched(page, stored);
            }
        }
    }

    /// Removes those touched pages from page `first` to before page `end` that are no longer mapped.
    pub(super) fn forget_touched(&mut self, first: u64, end: u64) {
        let is_unmapped = |page: u64| self.space.physical(page << PAGE_SHIFT).is_none();
        self.processes.touched_pages -= self.processes.running.forget_touched(first, end, is_unmapped);
    }
}
