//! Handles fork, exec and the end of processes.

use trace::PAGE_SHIFT;

use super::pages::{Pages, TouchedPages};
use super::processes::TAG_SHIFT;
use super::slot::Slots;
use super::state::Simulation;

impl Simulation {
    /// The running process has forked process `number`, which does not run yet. The child gets a copy of the memory, or shares it
    /// (`CLONE_VM`); then the parent must not run before the child has ended or executed a program. There can be at most
    /// [`MAX_PROCESSES`](super::MAX_PROCESSES) processes at the same time.
    pub fn fork(&mut self, number: u32, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let forked = if shares { Ok(self.processes.address_space) } else { self.space.fork() };
        self.apply_invalidations();
        match forked {
            Ok(process) => {
                let touched =
                    if shares { std::mem::take(&mut self.processes.running.touched) } else { self.inherited(process) };
                self.processes.fork(number, process, shares, Pages::of_forked(began_instructions, touched));
            }
            Err(error) => self.stopped = Some(error),
        }
    }

    /// Switches to another process.
    pub fn switch(&mut self, number: u32) {
        if self.stopped.is_none() {
            self.processes.switch(number);
            self.space.enter(self.processes.address_space);
            // Reclaim and khugepaged may have changed its memory while another process ran.
            self.apply_invalidations();
        }
    }

    /// The running process has executed another program; [`Simulation::event`] has processed the call. It continues with empty
    /// memory.
    pub fn exec(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.now();
        match self.space.exec(self.processes.shares()) {
            Ok(process) => self.processes.exec(process, now),
            Err(error) => self.stopped = Some(error),
        }
    }

    /// The running process has forked a process without a trace.
    pub fn note_unrecorded_fork(&mut self, shares: bool) {
        self.processes.unrecorded_forks += u64::from(!shares);
    }

    /// Process `number` has ended. Its ancestor `next` continues.
    pub fn end(&mut self, number: u32, next: u32) {
        if self.stopped.is_some() {
            return;
        }
        self.switch(number);
        let now = self.now();
        self.switch(next);
        let Some(ended) = self.processes.remove(number) else { return };
        // The ancestor was waiting in the meantime.
        let waited = now.saturating_sub(ended.since.max(self.processes.running.executed()));
        self.processes.running.began_instructions = self.processes.running.began_instructions.saturating_add(waited);
        if ended.shared_with.is_some() {
            // Faults and calls of the ended process changed its parent's memory.
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

    /// The model's time: the instruction count of the running process's thread that has executed most, including the time it waited
    /// for children. If the trace does not count instructions, it is the number of accesses.
    pub(super) fn now(&self) -> u64 {
        match self.processes.running.executed() {
            0 => self.accesses,
            now => now,
        }
    }

    /// The touched pages that a process that was just forked has mapped.
    fn inherited(&mut self, process: u32) -> TouchedPages {
        self.space.enter(process);
        let is_mapped = |(page, _): &(u64, bool)| self.space.physical(page << PAGE_SHIFT).is_some();
        let touched = self.processes.running.touched.iter().map(|(page, stored)| (*page, *stored));
        let inherited: TouchedPages = touched.filter(is_mapped).collect();
        self.space.enter(self.processes.address_space);
        self.processes.count_touched(inherited.len() as u64);
        inherited
    }

    /// Moves touched pages to their new addresses.
    pub(super) fn carry_touched(&mut self, touched: Vec<(u64, bool)>, to: u64) {
        for (page, stored) in touched {
            let page = (to >> PAGE_SHIFT) + page;
            if self.space.physical(page << PAGE_SHIFT).is_some() {
                self.processes.note_touched(page, stored);
            }
        }
    }

    /// Removes the touched pages of a range that are no longer mapped.
    pub(super) fn forget_touched(&mut self, first: u64, end: u64) {
        let is_unmapped = |page: u64| self.space.physical(page << PAGE_SHIFT).is_none();
        self.processes.touched_pages -= self.processes.running.forget_touched(first, end, is_unmapped);
    }
}
