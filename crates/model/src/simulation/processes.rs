//! The process that runs, and its parents, which wait for it.

use std::collections::{HashMap, HashSet};

use trace::PAGE_SHIFT;

use super::slot::Slots;
use super::{Hashing, LANES, Simulation};

/// Processes of which each waits for the one that it forked, at most: as many as tags tell apart.
pub const MOST_PROCESSES: usize = 1 << (u64::BITS - TAG_SHIFT);
/// Bits of an address that tell processes apart in TLBs and walk caches (PCID of x86, ASID of Arm and RISC-V): no user
/// address has them. Of processes that live at the same time each waits for the next, so the number of those that wait
/// tells them apart; what a process had is dropped when it ends.
const TAG_SHIFT: u32 = 58;

/// The pages of a process.
#[derive(Default)]
pub(super) struct Pages {
    /// By kind of access, then by the number of the page.
    pub slots: [Slots; LANES],
    /// The pages by their numbers.
    pub pages: Vec<u64>,
    pub numbers: HashMap<u64, u32, Hashing>,
    /// Pages of the address space that were touched and are mapped; one that shares its parent's has them for it.
    pub touched: HashSet<u64, Hashing>,
    /// By thread.
    pub instructions: Vec<u64>,
    /// What [`Simulation::now`] was when the process began, and what its children have taken since.
    began_instructions: u64,
}

/// A process that waits for one that it forked.
pub(super) struct Waiting {
    pub process: u32,
    tag: u64,
    pub pages: Pages,
}

impl Simulation {
    /// The running process has made another one, which runs now until [`Simulation::leave`]. It shares its parent's memory
    /// (`CLONE_VM`) or gets a copy. At most [`MOST_PROCESSES`] can live at the same time.
    pub fn enter(&mut self, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let entered = if shares { Ok(self.process) } else { self.space.fork() };
        self.settle();
        match entered {
            Ok(process) => {
                self.space.enter(process);
                let touched = if shares { std::mem::take(&mut self.own.touched) } else { self.inherited() };
                let own = Pages { began_instructions, touched, ..Pages::default() };
                let pages = std::mem::replace(&mut self.own, own);
                self.waiting.push(Waiting { process: self.process, tag: self.tag, pages });
                if !shares {
                    self.tag = (self.waiting.len() as u64) << TAG_SHIFT;
                }
                self.process = process;
            }
            Err(error) => self.stopped = Some(error),
        }
    }

    /// The running process has made another one of which nothing is known.
    pub fn missed(&mut self, shares: bool) {
        self.missed_forks += u64::from(!shares);
    }

    /// The running process has ended, and its parent goes on.
    pub fn leave(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.now();
        let Some(parent) = self.waiting.pop() else { return };
        let ended = std::mem::replace(&mut self.own, parent.pages);
        let (process, shared, tag) = (self.process, self.process == parent.process, self.tag);
        let taken = now.saturating_sub(ended.began_instructions);
        self.own.began_instructions = self.own.began_instructions.saturating_add(taken);
        (self.process, self.tag) = (parent.process, parent.tag);
        if shared {
            // Its faults and calls were its parent's.
            self.own.touched = ended.touched;
            self.own.slots.iter_mut().for_each(Slots::forget_all);
            return;
        }
        self.touched_pages -= ended.touched.len() as u64;
        self.space.enter(parent.process);
        self.stopped = self.space.end(process).err();
        let first = tag >> PAGE_SHIFT;
        self.drop_pages(first, first + (1 << (TAG_SHIFT - PAGE_SHIFT)));
        self.settle();
    }

    /// Instructions that the thread which has executed most has executed, those of its children included for which it
    /// waited: the model's time. Where the trace does not count instructions, accesses.
    pub(super) fn now(&self) -> u64 {
        let most = self.own.instructions.iter().max().copied().unwrap_or(0);
        match self.own.began_instructions.saturating_add(most) {
            0 => self.accesses,
            now => now,
        }
    }

    /// The touched pages that the process which was just forked has mapped, as its parent has.
    fn inherited(&mut self) -> HashSet<u64, Hashing> {
        let is_mapped = |page: &&u64| self.space.physical(**page << PAGE_SHIFT).is_some();
        let inherited: HashSet<u64, Hashing> = self.own.touched.iter().filter(is_mapped).copied().collect();
        self.count_touched(inherited.len() as u64);
        inherited
    }

    /// Touched pages of a range of as many bytes, by how far behind its beginning they are.
    pub(super) fn touched_in(&self, begin: u64, bytes: u64) -> Vec<u64> {
        let (first, end) = (begin >> PAGE_SHIFT, begin.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        let touched = &self.own.touched;
        if end - first < touched.len() as u64 {
            (first..end).filter(|page| touched.contains(page)).map(|page| page - first).collect()
        } else {
            touched.iter().filter(|page| (first..end).contains(page)).map(|page| page - first).collect()
        }
    }

    /// What was touched was moved, and is touched where it is now.
    pub(super) fn carry_touched(&mut self, touched: Vec<u64>, to: u64) {
        for page in touched {
            let page = (to >> PAGE_SHIFT) + page;
            if self.space.physical(page << PAGE_SHIFT).is_some() {
                self.note_touched(page);
            }
        }
    }

    fn count_touched(&mut self, pages: u64) {
        self.touched_pages += pages;
        self.touched_peak_pages = self.touched_peak_pages.max(self.touched_pages);
    }

    /// Notes that the running process has touched a page, which is mapped.
    pub(super) fn note_touched(&mut self, page: u64) {
        if self.own.touched.insert(page) {
            self.count_touched(1);
        }
    }

    /// Forgets touched pages of a range that nothing maps any more.
    pub(super) fn forget_touched(&mut self, first: u64, end: u64) {
        let touched = &self.own.touched;
        let is_gone = |page: &u64| self.space.physical(*page << PAGE_SHIFT).is_none();
        let gone: Vec<u64> = if end - first < touched.len() as u64 {
            (first..end).filter(|page| touched.contains(page) && is_gone(page)).collect()
        } else {
            touched.iter().filter(|page| (first..end).contains(page) && is_gone(page)).copied().collect()
        };
        self.touched_pages -= gone.len() as u64;
        gone.iter().for_each(|page| {
            self.own.touched.remove(page);
        });
    }
}
