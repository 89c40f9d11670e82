//! One machine under one policy: what a trace costs on it.
//!
//! Every page that a trace touches has a number, and for each kind of access a *slot* that says where its translation is
//! in the TLBs; a slot is made when a page is touched first and again after its mapping changed. So an access costs a
//! slot and a look at what its set was asked for last, or into the set; all else happens at misses and faults.

use std::ops::Range;

use trace::{Call, Chunk, Event, PAGE_SHIFT};

use crate::fold::Fold;
use crate::machine::{Machine, Serves, TlbShape};
use crate::policy::{Granule, ModelPolicy, Plan, Unsupported};
use crate::space::{self, Kernel, Leaf, Physical, Space, SpaceError};
use crate::walk::{LeafEntry, Walker};

/// Kinds of accesses: fetches, loads, stores.
const LANES: usize = 3;
/// Pages that are looked up one by one when they are dropped; of more, all entries are compared.
const FEW_PAGES: u64 = 16;

mod core;
mod keys;
mod looks;
mod outcome;
mod processes;
mod slot;

pub(crate) use keys::Hashing;
pub use outcome::{Found, Mapped, Misses, Outcome, SizeMisses};
pub use processes::MOST_PROCESSES;

use self::core::{Core, Fronts};
use keys::Keys;
use looks::Looks;
use processes::{Pages, Waiting};
use slot::{NONE, Rest, Slot};

/// A machine under a policy, and what the trace has cost so far.
pub struct Simulation {
    machine: Machine,
    policy: ModelPolicy,
    plan: Plan,
    seed: u64,
    space: Box<dyn Space>,
    /// By thread.
    cores: Vec<Core>,
    keys: Keys,
    fronts: Fronts,
    /// Which slots stores use: those of loads where the TLBs are the same.
    store_lane: usize,
    /// The process that runs; its address space may be its parent's.
    process: u32,
    /// What tells its addresses apart in TLBs.
    tag: u64,
    own: Pages,
    /// Its parents, the first process first.
    waiting: Vec<Waiting>,
    touched_pages: u64,
    touched_peak_pages: u64,
    /// Neighbours can change what hardware stores as one.
    sees_neighbours: bool,
    accesses: u64,
    runs: u64,
    /// Those that were recorded.
    instructions: u64,
    /// Processes of which there is no trace.
    missed_forks: u64,
    stopped: Option<SpaceError>,
    looks: Looks,
    fold: Fold,
}

impl Simulation {
    /// A machine that has not run yet.
    ///
    /// # Errors
    /// The machine cannot have the policy.
    pub fn new(machine: &Machine, policy: &ModelPolicy, physical: &Physical) -> Result<Simulation, Unsupported> {
        let plan = Plan::new(policy, machine)?;
        let refused = |error: paging::Error| Unsupported {
            machine: machine.name.clone(),
            policy: policy.to_string(),
            reason: error.to_string(),
        };
        let space = space::new(&plan, physical).map_err(refused)?;
        Walker::new(machine, space.shifts()).map_err(refused)?;
        let same = |tlb: &TlbShape| tlb.serves.contains(&Serves::Load) == tlb.serves.contains(&Serves::Store);
        let contiguity = |tlb: &TlbShape| {
            tlb.coalescing.is_some_and(|coalescing| coalescing.needs == crate::machine::Needs::Contiguity)
        };
        Ok(Simulation {
            store_lane: if machine.tlbs.iter().all(same) { 1 } else { 2 },
            sees_neighbours: machine.tlbs.iter().any(contiguity),
            machine: machine.clone(),
            policy: policy.clone(),
            fold: Fold::new(&plan.format),
            plan,
            seed: physical.seed,
            space,
            cores: Vec::new(),
            keys: Keys::default(),
            fronts: Fronts::of_machine(machine),
            process: 0,
            tag: 0,
            own: Pages::default(),
            waiting: Vec::new(),
            touched_pages: 0,
            touched_peak_pages: 0,
            accesses: 0,
            runs: 0,
            instructions: 0,
            missed_forks: 0,
            stopped: None,
            looks: Looks::default(),
        })
    }

    /// Whether the policy is one of the kernel's direct map, whose addresses are physical.
    pub fn is_direct(&self) -> bool {
        matches!(self.plan.granule, Granule::Direct(_))
    }

    /// Bytes of the pages of the pool that memory comes from.
    pub(crate) fn pool_page_bytes(&self) -> Option<u64> {
        if let Granule::Hugetlb(bytes) = self.plan.granule { Some(bytes) } else { None }
    }

    /// Gives numbers to further pages, in their order.
    pub fn add_pages(&mut self, pages: &[u64]) {
        for page in pages {
            let page = if self.is_direct() { *page } else { self.fold.address(page << PAGE_SHIFT) >> PAGE_SHIFT };
            self.own.numbers.insert(page, self.own.pages.len() as u32);
            self.own.pages.push(page);
        }
        self.own.slots.iter_mut().for_each(|slots| slots.resize(self.own.pages.len()));
    }

    /// Memory that is there though no event says so.
    pub fn assume(&mut self, begin: u64, end: u64) {
        if self.stopped.is_none() {
            let begin_to = if self.is_direct() { begin } else { self.fold.address(begin) };
            self.stopped = self.space.assume(begin_to, begin_to.saturating_add(end - begin)).err();
        }
    }

    /// A system call.
    pub fn event(&mut self, event: &Event) {
        // A forked process has its memory from its parent; its trace tells of it once more.
        let is_known = !self.waiting.is_empty() && matches!(event.call, Call::Region { .. });
        // One that shares its parent's memory leaves it alone when it goes.
        let shares = self.waiting.last().is_some_and(|parent| parent.process == self.process);
        let leaves = shares && matches!(event.call, Call::Exec { .. });
        if self.stopped.is_none() && !is_known && !leaves {
            let event = if self.is_direct() { event.clone() } else { self.fold.event(event) };
            let moved = match event.call {
                Call::Mremap { address, old_bytes, .. } if event.result != address as i64 => {
                    self.touched_in(address, old_bytes)
                }
                _ => Vec::new(),
            };
            let heard = self.space.event(&event);
            self.settle();
            self.carry_touched(moved, event.result as u64);
            self.stopped = heard.err();
        }
    }

    /// What the kernel does besides the policy.
    ///
    /// # Errors
    /// The machine has no such folios, or they are larger than those of the policy; or a PMD has fewer pages than may be
    /// missing.
    pub fn with_kernel(mut self, kernel: Kernel) -> Result<Simulation, Unsupported> {
        self.plan.admits_kernel(&kernel).map_err(|reason| Unsupported {
            machine: self.machine.name.clone(),
            policy: self.policy.to_string(),
            reason,
        })?;
        self.space.set_kernel(kernel);
        Ok(self)
    }

    /// How many instructions a thread has executed so far, and of how many more of them the accesses were recorded.
    pub fn instructions(&mut self, thread: usize, count: u64, recorded: u64) {
        self.instructions = self.instructions.saturating_add(recorded);
        let instructions = &mut self.own.instructions;
        if instructions.len() <= thread {
            instructions.resize(thread + 1, 0);
        }
        instructions[thread] = instructions[thread].max(count);
        if self.stopped.is_none() {
            self.stopped = self.space.advance(self.now()).err();
            self.settle();
        }
    }

    /// Runs of a thread; `numbers` are those of the chunk's pages.
    pub fn runs(&mut self, thread: usize, chunk: &Chunk, numbers: &[u32], range: Range<usize>) {
        if self.stopped.is_some() {
            return;
        }
        while self.cores.len() <= thread {
            let core = self.core();
            self.cores.push(core);
        }
        self.runs += range.len() as u64;
        self.accesses += match chunk.accesses.get(range.clone()) {
            Some(counts) => counts.iter().map(|count| u64::from(*count)).sum(),
            None => range.len() as u64,
        };
        let kinds = chunk.kinds.get(range.clone()).unwrap_or_default();
        self.stopped = self.look_up(thread, &chunk.ids[range], kinds, numbers).err();
    }

    fn core(&self) -> Core {
        let seed = self.seed ^ (self.cores.len() as u64) << 32;
        // It was made once when the simulation was.
        let walker = Walker::new(&self.machine, self.space.shifts()).expect("the walker was made before");
        Core::new(&self.machine, seed, walker)
    }

    /// The page was not touched since its mapping changed: there may be a fault.
    #[cold]
    #[inline(never)]
    fn unknown(
        &mut self,
        thread: usize,
        lane: usize,
        number: u32,
        stores: u32,
        loads_first: bool,
    ) -> Result<(), SpaceError> {
        let page = self.own.pages[number as usize];
        let va = page << PAGE_SHIFT;
        let mut leaf = self.space.access(va, stores != 0 && !loads_first)?;
        if loads_first && !leaf.writable {
            // What a load maps can be the zero page or a file's.
            let faulted = leaf.faulted;
            leaf = self.space.access(va, true)?;
            leaf.faulted |= faulted;
        }
        if leaf.faulted {
            self.settle();
            if self.sees_neighbours {
                self.forget_block(page, leaf);
            }
        }
        self.note_touched(page);
        let (first, rest) = self.slot(lane, va, &leaf);
        self.own.slots[lane].set(number, first, rest);
        // A store that is not allowed is one that the program was told of.
        self.look_again(thread, lane, number)
    }

    /// What hardware stores of the pages around one that was just mapped may be another size now.
    fn forget_block(&mut self, page: u64, leaf: Leaf) {
        let pages = (16 * leaf.leaf_bytes) >> PAGE_SHIFT;
        let first = page & !(pages - 1);
        for page in first..first + pages {
            if let Some(number) = self.own.numbers.get(&page) {
                self.own.slots.iter_mut().for_each(|slots| slots.forget(*number as usize));
            }
        }
    }

    fn slot(&mut self, lane: usize, va: u64, leaf: &Leaf) -> (Slot, Rest) {
        let serves = [Serves::Fetch, Serves::Load, Serves::Store][lane];
        // To look at the neighbours takes up to thirty translations.
        let run_bytes = if self.sees_neighbours { self.space.run_bytes(va, leaf) } else { leaf.group_bytes };
        let (first, first_shift) = self.tlb_for(1, serves, leaf, run_bytes);
        let (second, second_shift) = self.tlb_for(2, serves, leaf, run_bytes);
        let tagged = va ^ self.tag;
        let rest = Rest {
            entry: LeafEntry::of(&self.space.path(va)),
            page: va >> PAGE_SHIFT,
            second_key: if second == NONE { 0 } else { self.keys.key(second_shift, tagged) },
            second_index: (va >> second_shift) as u16,
            second,
            size: leaf.group_bytes.trailing_zeros() as u8,
        };
        let front = self.fronts.of(first, va >> first_shift);
        (Slot::new(self.keys.key(first_shift, tagged), first, front, leaf.writable), rest)
    }

    /// The TLB of a level that stores most of a leaf, and log2 of the bytes that it stores.
    fn tlb_for(&self, level: u8, serves: Serves, leaf: &Leaf, run_bytes: u64) -> (u8, u8) {
        let of_guest = |bytes: u64| match &self.machine.stage2 {
            // An entry covers no more than either stage maps.
            Some(stage2) => bytes.min(stage2.page.bytes()),
            None => bytes,
        };
        let (leaf_bytes, group_bytes, run_bytes) =
            (of_guest(leaf.leaf_bytes), of_guest(leaf.group_bytes), of_guest(run_bytes));
        let stored = |(index, tlb): (usize, &TlbShape)| {
            let serves = tlb.level == level && tlb.serves.contains(&serves);
            let bytes = if serves { tlb.stored_bytes(leaf_bytes, group_bytes, run_bytes) } else { None };
            bytes.map(|bytes| (bytes, index as u8))
        };
        let best = self.machine.tlbs.iter().enumerate().filter_map(stored).max_by_key(|(bytes, _)| *bytes);
        best.map_or((NONE, 0), |(bytes, index)| (index, bytes.trailing_zeros() as u8))
    }

    /// Drops from all TLBs what the kernel has dropped, and forgets the slots of those pages.
    fn settle(&mut self) {
        for (va, bytes) in self.space.take_invalidations() {
            let (first, pages) = (va >> PAGE_SHIFT, bytes.div_ceil(1 << PAGE_SHIFT));
            let tagged = first ^ self.tag >> PAGE_SHIFT;
            self.drop_pages(tagged, tagged + pages);
            self.forget_pages(first, first + pages);
            self.forget_touched(first, first + pages);
        }
        for (va, bytes) in self.space.take_forgotten() {
            self.forget_pages(va >> PAGE_SHIFT, va.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        }
    }

    /// Drops tagged pages from all TLBs and walk caches.
    fn drop_pages(&mut self, first: u64, end: u64) {
        for core in &mut self.cores {
            core.walker.forget(first << PAGE_SHIFT, (end - first) << PAGE_SHIFT);
        }
        if end - first > FEW_PAGES {
            let gone = |key| key != 0 && self.keys.overlaps(key, first, end);
            self.cores.iter_mut().for_each(|core| core.forget(gone));
            return;
        }
        for (key, page) in self.keys.in_range(first, end) {
            self.cores.iter_mut().for_each(|core| core.forget_one(key, page));
        }
    }

    /// Forgets the slots of the running process's pages.
    fn forget_pages(&mut self, first: u64, end: u64) {
        if end - first < self.own.pages.len() as u64 {
            for page in first..end {
                if let Some(number) = self.own.numbers.get(&page).copied() {
                    self.forget_page(number as usize);
                }
            }
        } else {
            for number in 0..self.own.pages.len() {
                if (first..end).contains(&self.own.pages[number]) {
                    self.forget_page(number);
                }
            }
        }
    }

    fn forget_page(&mut self, number: usize) {
        self.own.slots.iter_mut().for_each(|slots| slots.forget(number));
    }
}
