//! What happens when processes are forked and end.

use std::collections::HashSet;

use trace::PAGE_SHIFT;

use super::keys::Hashing;
use super::lineage::TAG_SHIFT;
use super::pages::Pages;
use super::slot::Slots;
use super::state::Simulation;

impl Simulation {
    /// The running process has made another one, which runs now until [`Simulation::leave`]. It shares its parent's memory
    /// (`CLONE_VM`) or gets a copy. At most [`MOST_PROCESSES`](super::MOST_PROCESSES) can live at the same time.
    pub fn enter(&mut self, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let entered = if shares { Ok(self.lineage.process) } else { self.space.fork() };
        self.settle();
        match entered {
            Ok(process) => {
                self.space.enter(process);
                let touched = if shares { std::mem::take(&mut self.lineage.own.touched) } else { self.inherited() };
                self.lineage.enter(process, shares, Pages::of_forked(began_instructions, touched));
            }
            Err(error) => self.stopped = Some(error),
        }
    }

    /// The running process executes another program, about which its call was told: it goes on with memory of its own, in which
    /// nothing is.
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

    /// The running process has made another one of which nothing is known.
    pub fn missed(&mut self, shares: bool) {
        self.lineage.missed_forks += u64::from(!shares);
    }

    /// The running process has ended, and its parent goes on.
    pub fn leave(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.now();
        let Some(ended) = self.lineage.leave(now) else { return };
        if ended.process == self.lineage.process {
            // Its faults and calls were its parent's.
            self.lineage.own.touched = ended.pages.touched;
            self.lineage.own.slots.iter_mut().for_each(Slots::forget_all);
            return;
        }
        self.lineage.touched_pages -= ended.pages.touched.len() as u64;
        self.space.enter(self.lineage.process);
        self.stopped = self.space.end(ended.process).err();
        let first = ended.tag >> PAGE_SHIFT;
        self.hardware.drop_pages(first, first + (1 << (TAG_SHIFT - PAGE_SHIFT)));
        self.settle();
    }

    /// Instructions that the thread which has executed most has executed, those of its children included for which it
    /// waited: the model's time. Where the trace does not count instructions, accesses.
    pub(super) fn now(&self) -> u64 {
        match self.lineage.own.executed() {
            0 => self.accesses,
            now => now,
        }
    }

    /// The touched pages that the process which was just forked has mapped, as its parent has.
    fn inherited(&mut self) -> HashSet<u64, Hashing> {
        let is_mapped = |page: &&u64| self.space.physical(**page << PAGE_SHIFT).is_some();
        let inherited: HashSet<u64, Hashing> = self.lineage.own.touched.iter().filter(is_mapped).copied().collect();
        self.lineage.count_touched(inherited.len() as u64);
        inherited
    }

    /// What was touched was moved, and is touched where it is now.
    pub(super) fn carry_touched(&mut self, touched: Vec<u64>, to: u64) {
        for page in touched {
            let page = (to >> PAGE_SHIFT) + page;
            if self.space.physical(page << PAGE_SHIFT).is_some() {
                self.lineage.note_touched(page);
            }
        }
    }

    /// Forgets touched pages of a range that nothing maps any more.
    pub(super) fn forget_touched(&mut self, first: u64, end: u64) {
        let is_gone = |page: u64| self.space.physical(page << PAGE_SHIFT).is_none();
        self.lineage.touched_pages -= self.lineage.own.forget_touched(first, end, is_gone);
    }
}
