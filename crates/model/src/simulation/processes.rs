//! Handles forks and ends of processes.

use trace::PAGE_SHIFT;

use super::lineage::TAG_SHIFT;
use super::pages::{Pages, TouchedPages};
use super::slot::Slots;
use super::state::Simulation;

impl Simulation {
    /// The running process has forked process `number`, which does not run yet. It gets a copy of the memory, or shares
    /// it (`CLONE_VM`); then its parent does not run before it has ended. At most
    /// [`MAX_PROCESSES`](super::MAX_PROCESSES) processes can live at the same time.
    pub fn fork(&mut self, number: u32, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let forked = if shares { Ok(self.lineage.process) } else { self.space.fork() };
        self.settle();
        match forked {
            Ok(process) => {
                let touched =
                    if shares { std::mem::take(&mut self.lineage.own.touched) } else { self.inherited(process) };
                self.lineage.fork(number, process, shares, Pages::of_forked(began_instructions, touched));
            }
            Err(error) => self.stopped = Some(error),
        }
    }

    /// Switches to another process.
    pub fn switch(&mut self, number: u32) {
        if self.stopped.is_none() {
            self.lineage.switch(number);
            self.space.enter(self.lineage.process);
        }
    }

    /// The running process executes another program, whose call was processed before. It continues with empty memory of
    /// its own.
    pub fn exec(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.now();
        match self.space.exec(self.lineage.shares()) {
            Ok(process) => self.lineage.exec(process, now),
            Err(error) => self.stopped = Some(error),
        }
    }

    /// The running process has forked a process without a trace.
    pub fn missed(&mut self, shares: bool) {
        self.lineage.missed_forks += u64::from(!shares);
    }

    /// A process has ended. The process `next`, one of its ancestors, continues.
    pub fn end(&mut self, number: u32, next: u32) {
        if self.stopped.is_some() {
            return;
        }
        self.switch(number);
        let now = self.now();
        self.switch(next);
        let Some(ended) = self.lineage.remove(number) else { return };
        // The process that waited for it continues now.
        let waited = now.saturating_sub(ended.since.max(self.lineage.own.executed()));
        self.lineage.own.began_instructions = self.lineage.own.began_instructions.saturating_add(waited);
        if ended.shared_with.is_some() {
            // Faults and calls of the ended process changed its parent's memory.
            self.lineage.own.touched = ended.pages.touched;
            self.lineage.own.slots.iter_mut().for_each(Slots::forget_all);
            return;
        }
        self.lineage.touched_pages -= ended.pages.touched.len() as u64;
        self.stopped = self.space.end(ended.process).err();
        let first = ended.tag >> PAGE_SHIFT;
        self.hardware.drop_pages(first, first + (1 << (TAG_SHIFT - PAGE_SHIFT)));
        self.settle();
    }

    /// The model's time: the instruction count of the thread that has executed most, including children that it waited
    /// for. If the trace does not count instructions, the number of accesses.
    pub(super) fn now(&self) -> u64 {
        match self.lineage.own.executed() {
            0 => self.accesses,
            now => now,
        }
    }

    /// The touched pages that the process that was just forked has mapped, as its parent has.
    fn inherited(&mut self, process: u32) -> TouchedPages {
        self.space.enter(process);
        let is_mapped = |(page, _): &(u64, bool)| self.space.physical(page << PAGE_SHIFT).is_some();
        let touched = self.lineage.own.touched.iter().map(|(page, stored)| (*page, *stored));
        let inherited: TouchedPages = touched.filter(is_mapped).collect();
        self.space.enter(self.lineage.process);
        self.lineage.count_touched(inherited.len() as u64);
        inherited
    }

    /// Moves touched pages to their new addresses.
    pub(super) fn carry_touched(&mut self, touched: Vec<(u64, bool)>, to: u64) {
        for (page, stored) in touched {
            let page = (to >> PAGE_SHIFT) + page;
            if self.space.physical(page << PAGE_SHIFT).is_some() {
                self.lineage.note_touched(page, stored);
            }
        }
    }

    /// Removes touched pages of a range that nothing maps any more.
    pub(super) fn forget_touched(&mut self, first: u64, end: u64) {
        let is_gone = |page: u64| self.space.physical(page << PAGE_SHIFT).is_none();
        self.lineage.touched_pages -= self.lineage.own.forget_touched(first, end, is_gone);
    }
}
