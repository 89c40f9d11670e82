//! One machine under one policy: what a trace costs on it.
//!
//! Every page that a trace touches has a number, and for each kind of access a *slot* that says where its translation is
//! in the TLBs; a slot is made when a page is touched first and again after its mapping changed. So an access costs a
//! slot and a look into a set; all else happens at misses and faults.

use std::ops::Range;

use serde::Serialize;
use study::size::PageSize;
use study::verdict::Verdict;
use trace::{Call, Chunk, Event, Filter, Geometry, Kind, NotExact, PAGE_SHIFT};

use crate::machine::{Machine, Replacement, Serves, TlbShape};
use crate::policy::{Granule, ModelPolicy, Plan, Unsupported};
use crate::space::{self, Costs, Kernel, Leaf, Physical, Space, SpaceError};
use crate::tlb::{Key, Tlb};
use crate::walk::{Walker, Walks};

/// The translation of a page is known, for loads and fetches.
const KNOWN: u8 = 1;
/// It may be stored to.
const WRITABLE: u8 = 2;
/// No TLB of this level holds it.
const NONE: u8 = u8::MAX;
/// Kinds of accesses: fetches, loads, stores.
const LANES: usize = 3;

/// Where the translation of a page is.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    first_key: Key,
    second_key: Key,
    first_index: u16,
    second_index: u16,
    first: u8,
    second: u8,
    flags: u8,
    /// log2 of the bytes that are mapped together.
    size: u8,
}

/// The TLBs and the walker of one hardware thread.
struct Core {
    tlbs: Vec<Tlb>,
    walker: Walker,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Counts {
    first_misses: [[u64; 64]; LANES],
    second_misses: [[u64; 64]; LANES],
    second_hit_cycles: u64,
}

/// Makes keys of stored pages.
#[derive(Default)]
struct Keys {
    numbers: std::collections::HashMap<(u8, u64), Key, Hashing>,
    /// For each key the first 4K page and how many pages.
    ranges: Vec<(u64, u64)>,
}

/// Hashes page numbers: the same in every run.
pub(crate) type Hashing = std::hash::BuildHasherDefault<Multiplicative>;

/// Fibonacci hashing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multiplicative(u64);

impl std::hash::Hasher for Multiplicative {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The low bits, which choose the bucket, depend on all.
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Keys {
    /// The key of a stored page; `va` has the [`tag`] of its process.
    fn key(&mut self, shift: u8, va: u64) -> Key {
        let ranges = &mut self.ranges;
        *self.numbers.entry((shift, va >> shift)).or_insert_with(|| {
            let pages = 1u64 << (u32::from(shift) - PAGE_SHIFT);
            ranges.push((va >> shift << (u32::from(shift) - PAGE_SHIFT), pages));
            ranges.len() as Key
        })
    }

    fn overlaps(&self, key: Key, first: u64, end: u64) -> bool {
        let (page, pages) = self.ranges[key as usize - 1];
        page < end && page + pages > first
    }
}

/// Bits of an address that tell processes apart in TLBs and walk caches (PCID of x86, ASID of Arm and RISC-V): no user
/// address has them. Numbers come again after 64 processes, and what the one before had is dropped when it ends.
const TAG_SHIFT: u32 = 58;

/// What an address of a process is in TLBs.
fn tag(process: u32) -> u64 {
    u64::from(process % 64) << TAG_SHIFT
}

/// The pages of a process.
#[derive(Default)]
struct Pages {
    /// By kind of access, then by the number of the page.
    slots: [Vec<Slot>; LANES],
    /// The pages by their numbers.
    pages: Vec<u64>,
    numbers: std::collections::HashMap<u64, u32, Hashing>,
    touched: Vec<bool>,
    /// By thread.
    instructions: Vec<u64>,
    /// What [`Simulation::now`] was when the process began, and what its children have taken since.
    began_instructions: u64,
}

/// A process that waits for one that it forked.
struct Waiting {
    process: u32,
    pages: Pages,
}

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
    /// Which slots stores use: those of loads where the TLBs are the same.
    store_lane: usize,
    /// The process that runs; its address space may be its parent's.
    process: u32,
    own: Pages,
    /// Its parents, the first process first.
    waiting: Vec<Waiting>,
    touched_pages: u64,
    touched_peak_pages: u64,
    /// Neighbours can change what hardware stores as one.
    sees_neighbours: bool,
    accesses: u64,
    runs: u64,
    /// Of processes that have ended.
    ended_instructions: u64,
    /// Processes of which there is no trace.
    missed_forks: u64,
    stopped: Option<SpaceError>,
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
            plan,
            seed: physical.seed,
            space,
            cores: Vec::new(),
            keys: Keys::default(),
            process: 0,
            own: Pages::default(),
            waiting: Vec::new(),
            touched_pages: 0,
            touched_peak_pages: 0,
            accesses: 0,
            runs: 0,
            ended_instructions: 0,
            missed_forks: 0,
            stopped: None,
        })
    }

    /// Refuses traces whose filter has left out what this machine would see.
    ///
    /// # Errors
    /// Says what the trace is exact for.
    pub fn admits(&self, filter: &Filter) -> Result<(), NotExact> {
        let large = self.plan.page_bytes();
        for tlb in self.machine.tlbs.iter().filter(|tlb| tlb.level == 1) {
            for bytes in [self.plan.base_bytes, large] {
                let sizes =
                    [tlb.stored_bytes(self.plan.base_bytes, bytes, bytes), tlb.stored_bytes(bytes, bytes, bytes)];
                for page_bytes in sizes.into_iter().flatten() {
                    let lru = tlb.replacement == Replacement::Lru;
                    filter.admits(&Geometry { page_bytes, sets: tlb.sets, lru })?;
                }
            }
        }
        Ok(())
    }

    /// Whether the policy is one of the kernel's direct map, whose addresses are physical.
    pub fn is_direct(&self) -> bool {
        matches!(self.plan.granule, Granule::Direct(_))
    }

    /// Gives numbers to further pages, in their order.
    pub fn add_pages(&mut self, pages: &[u64]) {
        for page in pages {
            self.own.numbers.insert(*page, self.own.pages.len() as u32);
            self.own.pages.push(*page);
        }
        for slots in &mut self.own.slots {
            slots.resize(self.own.pages.len(), Slot::default());
        }
        self.own.touched.resize(self.own.pages.len(), false);
    }

    /// Memory that is there though no event says so.
    pub fn assume(&mut self, begin: u64, end: u64) {
        if self.stopped.is_none() {
            self.stopped = self.space.assume(begin, end).err();
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
            let heard = self.space.event(event);
            self.settle();
            self.stopped = heard.err();
        }
    }

    /// What the kernel does besides the policy.
    #[must_use]
    pub fn with_kernel(mut self, kernel: Kernel) -> Simulation {
        self.space.set_kernel(kernel);
        self
    }

    /// The running process has made another one, which runs now until [`Simulation::leave`]. It shares its parent's memory
    /// (`CLONE_VM`) or gets a copy.
    pub fn enter(&mut self, shares: bool) {
        if self.stopped.is_some() {
            return;
        }
        let began_instructions = self.now();
        let entered = if shares { Ok(self.process) } else { self.space.fork() };
        self.settle();
        match entered {
            Ok(process) => {
                let own = Pages { began_instructions, ..Pages::default() };
                let pages = std::mem::replace(&mut self.own, own);
                self.waiting.push(Waiting { process: self.process, pages });
                self.process = process;
                self.space.enter(process);
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
        let (process, shared) = (self.process, self.process == parent.process);
        self.touched_pages -= ended.touched.iter().filter(|touched| **touched).count() as u64;
        self.ended_instructions += ended.instructions.iter().sum::<u64>();
        self.own.began_instructions += now - ended.began_instructions;
        self.process = parent.process;
        if shared {
            // Its faults and calls were its parent's.
            (0..self.own.pages.len()).for_each(|number| self.forget_page(number));
            return;
        }
        self.space.enter(parent.process);
        self.stopped = self.space.end(process).err();
        let first = tag(process) >> PAGE_SHIFT;
        self.drop_pages(first, first + (1 << (TAG_SHIFT - PAGE_SHIFT)));
        self.settle();
    }

    /// Instructions that the thread which has executed most has executed, those of its children included for which it
    /// waited: the model's time. Where the trace does not count instructions, accesses.
    fn now(&self) -> u64 {
        let most = self.own.instructions.iter().max().copied().unwrap_or(0);
        if most == 0 && self.own.began_instructions == 0 { self.accesses } else { self.own.began_instructions + most }
    }

    /// How many instructions a thread has executed so far.
    pub fn instructions(&mut self, thread: usize, count: u64) {
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
        let done = match chunk.kinds.get(range.clone()) {
            Some(kinds) if self.store_lane == 2 => self.split_runs(thread, &chunk.ids[range], kinds, numbers),
            Some(kinds) => self.kind_runs(thread, &chunk.ids[range], kinds, numbers),
            None => self.load_runs(thread, &chunk.ids[range], numbers),
        };
        self.stopped = done.err();
    }

    fn core(&self) -> Core {
        let seed = self.seed ^ (self.cores.len() as u64) << 32;
        let tlb = |(index, tlb): (usize, &TlbShape)| Tlb::new(tlb.sets, tlb.ways, tlb.replacement, seed ^ index as u64);
        Core {
            tlbs: self.machine.tlbs.iter().enumerate().map(tlb).collect(),
            // It was made once when the simulation was.
            walker: Walker::new(&self.machine, self.space.shifts()).expect("the walker was made before"),
            counts: Counts { first_misses: [[0; 64]; LANES], second_misses: [[0; 64]; LANES], second_hit_cycles: 0 },
        }
    }

    /// Loads only.
    fn load_runs(&mut self, thread: usize, ids: &[u16], numbers: &[u32]) -> Result<(), SpaceError> {
        for id in ids {
            self.access(thread, 1, numbers[usize::from(*id)], KNOWN)?;
        }
        Ok(())
    }

    /// Runs of all kinds, where loads and stores look into the same TLBs.
    fn kind_runs(&mut self, thread: usize, ids: &[u16], kinds: &[u8], numbers: &[u32]) -> Result<(), SpaceError> {
        let (mut ids, mut kinds) = (ids, kinds);
        loop {
            let [code, data, _] = &self.own.slots;
            let hits = leading_hits(&mut self.cores[thread].tlbs, [code, data], ids, kinds, numbers);
            let (Some(id), Some(kind)) = (ids.get(hits.count), kinds.get(hits.count)) else { return Ok(()) };
            let (number, lane) = (numbers[usize::from(*id)], lane(*kind));
            match hits.missed {
                Some(slot) => self.first_missed(thread, lane, number, slot)?,
                None => self.unknown(thread, lane, number, needs(*kind))?,
            }
            (ids, kinds) = (&ids[hits.count + 1..], &kinds[hits.count + 1..]);
        }
    }

    /// Runs of all kinds, where stores have TLBs of their own: a run of both looks into both.
    fn split_runs(&mut self, thread: usize, ids: &[u16], kinds: &[u8], numbers: &[u32]) -> Result<(), SpaceError> {
        for (id, bits) in ids.iter().zip(kinds) {
            let number = numbers[usize::from(*id)];
            let has = |kind: Kind| bits & kind.bits() != 0;
            if has(Kind::FETCH) {
                self.access(thread, 0, number, KNOWN)?;
                continue;
            }
            let store_first = has(Kind::STORE_FIRST);
            if has(Kind::STORE) && store_first {
                self.access(thread, 2, number, KNOWN | WRITABLE)?;
            }
            if has(Kind::LOAD) {
                self.access(thread, 1, number, KNOWN)?;
            }
            if has(Kind::STORE) && !store_first {
                self.access(thread, 2, number, KNOWN | WRITABLE)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn access(&mut self, thread: usize, lane: usize, number: u32, needs: u8) -> Result<(), SpaceError> {
        let slot = self.own.slots[lane][number as usize];
        if slot.flags & needs != needs {
            return self.unknown(thread, lane, number, needs);
        }
        let core = &mut self.cores[thread];
        if core.tlbs[usize::from(slot.first)].touch(u32::from(slot.first_index), slot.first_key) {
            return Ok(());
        }
        self.first_missed(thread, lane, number, slot)
    }

    /// The first level had no entry.
    fn first_missed(&mut self, thread: usize, lane: usize, number: u32, slot: Slot) -> Result<(), SpaceError> {
        let core = &mut self.cores[thread];
        core.counts.first_misses[lane][usize::from(slot.size)] += 1;
        if slot.second != NONE {
            let second = usize::from(slot.second);
            if core.tlbs[second].touch(u32::from(slot.second_index), slot.second_key) {
                core.counts.second_hit_cycles += u64::from(self.machine.tlbs[second].hit_cycles);
                return Ok(());
            }
        }
        core.counts.second_misses[lane][usize::from(slot.size)] += 1;
        let va = self.own.pages[number as usize] << PAGE_SHIFT;
        let tagged = va ^ tag(self.process);
        Ok(core.walker.walk(tagged, &self.space.path(va), || self.space.physical(va))?)
    }

    /// The page was not touched since its mapping changed: there may be a fault.
    #[cold]
    #[inline(never)]
    fn unknown(&mut self, thread: usize, lane: usize, number: u32, needs: u8) -> Result<(), SpaceError> {
        let page = self.own.pages[number as usize];
        let va = page << PAGE_SHIFT;
        let leaf = self.space.access(va, needs & WRITABLE != 0)?;
        if leaf.faulted {
            self.settle();
            if self.sees_neighbours {
                self.forget_block(page, leaf);
            }
        }
        if !self.own.touched[number as usize] {
            self.own.touched[number as usize] = true;
            self.touched_pages += 1;
            self.touched_peak_pages = self.touched_peak_pages.max(self.touched_pages);
        }
        self.own.slots[lane][number as usize] = self.slot(lane, va, &leaf);
        self.access(thread, lane, number, needs & KNOWN)
    }

    /// What hardware stores of the pages around one that was just mapped may be another size now.
    fn forget_block(&mut self, page: u64, leaf: Leaf) {
        let pages = (16 * leaf.leaf_bytes) >> PAGE_SHIFT;
        let first = page & !(pages - 1);
        for page in first..first + pages {
            if let Some(number) = self.own.numbers.get(&page) {
                self.own.slots.iter_mut().for_each(|slots| slots[*number as usize].flags = 0);
            }
        }
    }

    fn slot(&mut self, lane: usize, va: u64, leaf: &Leaf) -> Slot {
        let serves = [Serves::Fetch, Serves::Load, Serves::Store][lane];
        let (first, first_shift) = self.tlb_for(1, serves, leaf);
        let (second, second_shift) = self.tlb_for(2, serves, leaf);
        Slot {
            first_key: self.keys.key(first_shift, va ^ tag(self.process)),
            second_key: if second == NONE { 0 } else { self.keys.key(second_shift, va ^ tag(self.process)) },
            first_index: (va >> first_shift) as u16,
            second_index: (va >> second_shift) as u16,
            first,
            second,
            flags: KNOWN | if leaf.writable { WRITABLE } else { 0 },
            size: leaf.group_bytes.trailing_zeros() as u8,
        }
    }

    /// The TLB of a level that stores most of a leaf, and log2 of the bytes that it stores.
    fn tlb_for(&self, level: u8, serves: Serves, leaf: &Leaf) -> (u8, u8) {
        let of_guest = |bytes: u64| match &self.machine.stage2 {
            // An entry covers no more than either stage maps.
            Some(stage2) => bytes.min(stage2.page.bytes()),
            None => bytes,
        };
        let (leaf_bytes, group_bytes, run_bytes) =
            (of_guest(leaf.leaf_bytes), of_guest(leaf.group_bytes), of_guest(leaf.run_bytes));
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
            let (first, end) = (va >> PAGE_SHIFT, (va + bytes).div_ceil(1 << PAGE_SHIFT));
            let tag = tag(self.process) >> PAGE_SHIFT;
            self.drop_pages(first ^ tag, end ^ tag);
            self.forget_pages(first, end);
        }
        for (va, bytes) in self.space.take_forgotten() {
            self.forget_pages(va >> PAGE_SHIFT, va.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        }
    }

    /// Drops tagged pages from all TLBs and walk caches.
    fn drop_pages(&mut self, first: u64, end: u64) {
        for core in &mut self.cores {
            for tlb in &mut core.tlbs {
                tlb.forget(|key| self.keys.overlaps(key, first, end));
            }
            core.walker.forget(first << PAGE_SHIFT, (end - first) << PAGE_SHIFT);
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
        self.own.slots.iter_mut().for_each(|slots| slots[number].flags = 0);
        if self.own.touched[number] && self.space.physical(self.own.pages[number] << PAGE_SHIFT).is_none() {
            self.own.touched[number] = false;
            self.touched_pages -= 1;
        }
    }

    /// What everything has cost.
    ///
    /// # Errors
    /// The tables cannot be walked, which no operation makes.
    pub fn outcome(&self) -> Result<Outcome, paging::Error> {
        let sum = |of: fn(&Counts) -> &[[u64; 64]; LANES]| {
            let mut all = [[0; 64]; LANES];
            for core in &self.cores {
                for (all, counts) in all.iter_mut().flatten().zip(of(&core.counts).iter().flatten()) {
                    *all += counts;
                }
            }
            Misses::of(&all)
        };
        let walks: Vec<Walks> = self.cores.iter().map(|core| core.walker.counted()).collect();
        let total = |of: fn(&Walks) -> u64| walks.iter().map(of).sum::<u64>();
        let names = self.machine.walker.caches.iter().map(|cache| cache.name.clone()).chain(["memory".to_owned()]);
        let found = names
            .enumerate()
            .map(|(index, cache)| Found { cache, references: walks.iter().map(|walks| walks.found[index]).sum() });
        let census = self.space.census()?;
        let size = |bytes| PageSize::new(bytes).map_or(PageSize::K4, |size| size);
        let mapped = |census: paging::Census| -> Vec<Mapped> {
            let line = |(leaf, bytes): (&paging::LeafSize, &u64)| Mapped {
                leaf_bytes: size(leaf.leaf_bytes).bytes(),
                group_bytes: size(leaf.group_bytes).bytes(),
                bytes: *bytes,
            };
            census.mapped_bytes.iter().map(line).collect()
        };
        let waiting = self.waiting.iter().flat_map(|waiting| &waiting.pages.instructions);
        let instructions = self.ended_instructions + self.own.instructions.iter().chain(waiting).sum::<u64>();
        let second_hit_cycles = self.cores.iter().map(|core| core.counts.second_hit_cycles).sum();
        let costs = Costs { forks: self.missed_forks, ..self.space.costs() };
        Ok(Outcome {
            machine: self.machine.name.clone(),
            policy: self.policy.clone(),
            table_format: self.plan.format.name.clone(),
            page_bytes: self.plan.page_bytes(),
            threads: self.cores.len(),
            accesses: self.accesses,
            runs: self.runs,
            instructions: (instructions != 0).then_some(instructions),
            first_level: sum(|counts| &counts.first_misses),
            second_level: sum(|counts| &counts.second_misses),
            walks: total(|walks| walks.walks),
            walk_references: total(|walks| walks.references),
            found: found.collect(),
            walk_cycles: total(|walks| walks.cycles),
            second_hit_cycles,
            walkers: self.machine.walker.walkers,
            faults: costs.faults(),
            resident_bytes: costs.resident_bytes(),
            touched_bytes: self.touched_pages << PAGE_SHIFT,
            touched_peak_bytes: self.touched_peak_pages << PAGE_SHIFT,
            costs,
            mapped: mapped(census),
            mapped_at_ends: mapped(self.space.census_at_ends()?),
            verdict: self.space.verdict()?,
            stopped: self.stopped.as_ref().map(ToString::to_string),
        })
    }
}

/// Fetches, or data.
fn lane(kind: u8) -> usize {
    usize::from(kind & Kind::FETCH.bits() == 0)
}

/// What a slot must say for a run of this kind.
fn needs(kind: u8) -> u8 {
    // The bit of stores stands one above that of slots which may be written.
    KNOWN | (kind >> 1) & WRITABLE
}

/// How the first runs went that needed nothing but a look into the first level.
struct Hits {
    /// How many they were.
    count: usize,
    /// The slot of the run behind them, if the first level did not hold it (it does now); `None` if the slot is not known.
    missed: Option<Slot>,
}

/// Looks runs up until one is not in the first level.
#[inline(never)]
fn leading_hits(tlbs: &mut [Tlb], slots: [&[Slot]; 2], ids: &[u16], kinds: &[u8], numbers: &[u32]) -> Hits {
    for (count, (id, kind)) in ids.iter().zip(kinds).enumerate() {
        let slot = slots[lane(*kind)][numbers[usize::from(*id)] as usize];
        let needs = needs(*kind);
        if slot.flags & needs != needs {
            return Hits { count, missed: None };
        }
        if !tlbs[usize::from(slot.first)].touch(u32::from(slot.first_index), slot.first_key) {
            return Hits { count, missed: Some(slot) };
        }
    }
    Hits { count: ids.len(), missed: None }
}

/// Misses of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Of instruction fetches.
    pub fetch: u64,
    /// Of loads; of all data where stores use the same TLBs.
    pub load: u64,
    /// Of stores, where they have TLBs of their own.
    pub store: u64,
    /// By the size that is mapped together, smallest first.
    pub by_size: Vec<SizeMisses>,
}

/// Misses of one page size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeMisses {
    /// Bytes of the leaf or its contiguous group.
    pub page_bytes: u64,
    /// Misses.
    pub misses: u64,
}

impl Misses {
    fn of(counts: &[[u64; 64]; LANES]) -> Misses {
        let lane = |lane: usize| counts[lane].iter().sum();
        let size = |shift: usize| counts.iter().map(|lane| lane[shift]).sum::<u64>();
        let by_size = (0..64).filter(|shift| size(*shift) != 0);
        let by_size = by_size.map(|shift| SizeMisses { page_bytes: 1 << shift, misses: size(shift) });
        Misses { fetch: lane(0), load: lane(1), store: lane(2), by_size: by_size.collect() }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.fetch + self.load + self.store
    }
}

/// Where entries were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The cache, or `memory`.
    pub cache: String,
    /// Entries that it gave.
    pub references: u64,
}

/// A line of the census.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// Bytes of a leaf.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group, or of the leaf.
    pub group_bytes: u64,
    /// Bytes that are mapped so.
    pub bytes: u64,
}

/// What a trace costs on a machine under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The machine.
    pub machine: String,
    /// The policy.
    pub policy: ModelPolicy,
    /// The format of the page tables.
    pub table_format: String,
    /// The page size that the policy asks for.
    pub page_bytes: u64,
    /// Threads, each on a processor of its own.
    pub threads: usize,
    /// Accesses of the trace; recorders disagree on what one is.
    pub accesses: u64,
    /// Runs of accesses to one 4K page.
    pub runs: u64,
    /// Instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// What the first level did not hold.
    pub first_level: Misses,
    /// What neither level held.
    pub second_level: Misses,
    /// Walks.
    pub walks: u64,
    /// Entries that walks read.
    pub walk_references: u64,
    /// Where they were found, the nearest cache first.
    pub found: Vec<Found>,
    /// Cycles of all walks, one after the other.
    pub walk_cycles: u64,
    /// Cycles of hits in the second level.
    pub second_hit_cycles: u64,
    /// Walks that the machine can do at the same time.
    pub walkers: u32,
    /// All faults.
    pub faults: u64,
    /// Memory that is mapped at the end.
    pub resident_bytes: u64,
    /// 4K pages touched and still mapped at the end.
    pub touched_bytes: u64,
    /// The most of those at once.
    pub touched_peak_bytes: u64,
    /// What demand paging cost.
    #[serde(flatten)]
    pub costs: Costs,
    /// What the tables map at the end.
    pub mapped: Vec<Mapped>,
    /// What each process had mapped when it ended, summed; the first one at the end of the trace.
    pub mapped_at_ends: Vec<Mapped>,
    /// Whether the policy held, by what was mapped before it went and at the end.
    pub verdict: Verdict,
    /// Why the simulation ended before the trace did.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Cycles that translation takes if nothing is done at the same time.
    pub fn most_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles
    }

    /// Cycles that translation takes if all walkers are always busy.
    pub fn least_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles / u64::from(self.walkers)
    }
}
