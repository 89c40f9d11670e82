//! A machine under a policy, and what a trace does to it.

use std::ops::Range;

use ::policy::Mechanism;
use trace::{Call, Chunk, Event, PAGE_SHIFT};

use super::hardware::Hardware;
use super::lineage::Lineage;
use super::lookup::Lookups;
use super::paths::Paths;
use super::setup::Setup;
use super::slot::{FURTHER_LEVELS, LANES, NONE, Rest, Slot, Stored};
use crate::fold::Fold;
use crate::layout::{Bits, Draw, Home, Scheme};
use crate::machine::{Machine, Serves};
use crate::policy::{Granule, ModelPolicy, Unsupported};
use crate::space::{self, Kernel, Leaf, Physical, Space, SpaceError};
use crate::walk::LeafEntry;

/// What each kind of access is to a TLB.
const SERVES: [Serves; LANES] = [Serves::Fetch, Serves::Load, Serves::Store];

/// A machine under a policy, and what the trace has cost so far.
pub struct Simulation {
    pub(super) setup: Setup,
    pub(super) space: Box<dyn Space>,
    pub(super) hardware: Hardware,
    pub(super) lineage: Lineage,
    pub(super) lookups: Lookups,
    pub(super) paths: Paths,
    pub(super) fold: Fold,
    /// Which layout of randomisation its program has.
    draw: Option<Draw>,
    /// Pages of its kernel's vdso, where they were said.
    vdso_pages: Option<u64>,
    pub(super) accesses: u64,
    pub(super) runs: u64,
    /// Those that were recorded.
    pub(super) instructions: u64,
    pub(super) stopped: Option<SpaceError>,
}

impl Simulation {
    /// A machine that has not run yet.
    ///
    /// # Errors
    /// The machine cannot have the policy.
    pub fn new(machine: &Machine, policy: &ModelPolicy, physical: &Physical) -> Result<Simulation, Unsupported> {
        let setup = Setup::new(machine, policy, physical.seed)?;
        let space = space::new(&setup.plan, physical).map_err(|error| setup.refused(error))?;
        let hardware = Hardware::new(machine, space.shifts()).map_err(|error| setup.refused(error))?;
        Ok(Simulation {
            fold: Fold::new(&setup.plan.format),
            draw: None,
            vdso_pages: None,
            setup,
            space,
            hardware,
            lineage: Lineage::default(),
            lookups: Lookups::default(),
            paths: Paths::default(),
            accesses: 0,
            runs: 0,
            instructions: 0,
            stopped: None,
        })
    }

    /// Whether the policy is one of the kernel's direct map, whose addresses are physical.
    pub fn is_direct(&self) -> bool {
        matches!(self.setup.plan.granule, Granule::Direct(_))
    }

    /// Which addresses a program of an architecture has.
    pub(crate) fn scheme(&self, architecture: &str) -> Scheme {
        let home = Home::of(architecture, self.setup.plan.base_bytes, self.setup.plan.pmd_bytes, self.vdso_pages);
        Scheme { pool: self.of_pool(), draw: self.draw, home }
    }

    /// Whether its program has a layout of randomisation.
    pub(crate) fn is_drawn(&self) -> bool {
        self.draw.is_some()
    }

    /// The policy, if it is one of pages of a pool.
    pub(crate) fn of_pool(&self) -> Option<Mechanism> {
        Some(self.setup.plan.mechanism).filter(|mechanism| mechanism.hugetlb)
    }

    /// With one of the layouts that Linux makes by randomisation, which `seed` chooses.
    #[must_use]
    pub fn with_layout(self, seed: u64) -> Simulation {
        let bits = Bits::of_addresses(self.fold.user_bits());
        Simulation { draw: Some(Draw { seed, bits }), ..self }
    }

    /// Gives numbers to further pages, in their order.
    pub fn add_pages(&mut self, pages: &[u64]) {
        for page in pages {
            let page = if self.is_direct() { *page } else { self.fold.address(page << PAGE_SHIFT) >> PAGE_SHIFT };
            self.lineage.own.add(page);
        }
        self.lineage.own.resize_slots();
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
        let is_told_before = self.lineage.own.is_inherited && matches!(event.call, Call::Region { .. });
        // One that shares its parent's memory leaves it alone when it goes.
        let leaves = self.lineage.shares() && matches!(event.call, Call::Exec { .. });
        if self.stopped.is_none() && !is_told_before && !leaves {
            let event = if self.is_direct() { event.clone() } else { self.fold.event(event) };
            let moved = match event.call {
                Call::Mremap { address, old_bytes, .. } if event.result != address as i64 => {
                    self.lineage.own.touched_in(address, old_bytes)
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
        self.setup.plan.admits_kernel(&kernel).map_err(|reason| self.setup.refused(reason))?;
        self.vdso_pages = kernel.vdso_pages;
        self.space.set_kernel(kernel);
        Ok(self)
    }

    /// How many instructions a thread has executed so far, and of how many more of them the accesses were recorded.
    pub fn instructions(&mut self, thread: usize, count: u64, recorded: u64) {
        self.instructions = self.instructions.saturating_add(recorded);
        self.lineage.own.note_instructions(thread, count);
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
        if self.hardware.cores.len() <= thread {
            self.hardware.add_cores(thread, &self.setup.machine, self.space.shifts(), self.setup.seed);
        }
        self.runs += range.len() as u64;
        self.accesses += match chunk.accesses.get(range.clone()) {
            Some(counts) => counts.iter().map(|count| u64::from(*count)).sum(),
            None => range.len() as u64,
        };
        let kinds = chunk.kinds.get(range.clone()).unwrap_or_default();
        self.stopped = self.look_up(thread, &chunk.ids[range], kinds, numbers).err();
    }

    /// The page was not touched since its mapping changed: there may be a fault.
    #[cold]
    #[inline(never)]
    pub(super) fn unknown(
        &mut self,
        thread: usize,
        lane: usize,
        number: u32,
        stores: u32,
        loads_first: bool,
    ) -> Result<(), SpaceError> {
        let page = self.lineage.own.pages[number as usize];
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
            if self.setup.sees_neighbours {
                // What hardware stores of the pages around may be another size now.
                let (first, pages) = Setup::block(page, leaf);
                self.lineage.own.forget_numbered(first, first + pages);
            }
        }
        self.lineage.note_touched(page, stores != 0);
        let (first, rest) = self.slot(lane, va, &leaf);
        self.lineage.own.slots[lane].set(number, first, rest);
        if self.setup.has_further_levels {
            let further = self.further(lane, va, &leaf);
            self.lineage.own.slots[lane].set_further(number, further);
        }
        // A store that is not allowed is one that the program was told of.
        self.look_again(thread, lane, number)
    }

    /// Bytes around an address that hardware may store as one, whatever the tables say.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        // To look at the neighbours takes up to thirty translations.
        if self.setup.sees_neighbours { self.space.run_bytes(va, leaf) } else { leaf.group_bytes }
    }

    /// Where the levels behind the second have a page.
    fn further(&mut self, lane: usize, va: u64, leaf: &Leaf) -> [Stored; FURTHER_LEVELS] {
        let run_bytes = self.run_bytes(va, leaf);
        std::array::from_fn(|further| match self.setup.tlb_for(3 + further as u8, SERVES[lane], leaf, run_bytes) {
            (NONE, _) => Stored::default(),
            (tlb, shift) => {
                let key = self.hardware.keys.key(shift, va ^ self.lineage.tag);
                Stored { key, index: (va >> shift) as u16, tlb }
            }
        })
    }

    fn slot(&mut self, lane: usize, va: u64, leaf: &Leaf) -> (Slot, Rest) {
        let serves = SERVES[lane];
        let run_bytes = self.run_bytes(va, leaf);
        let (first, first_shift) = self.setup.tlb_for(1, serves, leaf, run_bytes);
        let (second, second_shift) = self.setup.tlb_for(2, serves, leaf, run_bytes);
        let (tagged, keys) = (va ^ self.lineage.tag, &mut self.hardware.keys);
        let path = self.space.path(va);
        let rest = Rest {
            entry: LeafEntry::of(&path),
            path: self.paths.number(&path),
            page: va >> PAGE_SHIFT,
            second_key: if second == NONE { 0 } else { keys.key(second_shift, tagged) },
            second_index: (va >> second_shift) as u16,
            second,
            size: leaf.group_bytes.trailing_zeros() as u8,
        };
        let front = self.hardware.fronts.of(first, va >> first_shift);
        // Under a policy of a pool the first store to each page is asked for.
        let knows_stores = !self.setup.plan.mechanism.hugetlb || self.lineage.own.has_stored_to(va >> PAGE_SHIFT);
        (Slot::new(keys.key(first_shift, tagged), first, front, leaf.writable && knows_stores), rest)
    }

    /// Drops from all TLBs what the kernel has dropped, and forgets the slots of those pages.
    pub(super) fn settle(&mut self) {
        for (va, bytes) in self.space.take_invalidations() {
            let (first, pages) = (va >> PAGE_SHIFT, bytes.div_ceil(1 << PAGE_SHIFT));
            let tagged = first ^ self.lineage.tag >> PAGE_SHIFT;
            self.hardware.drop_pages(tagged, tagged + pages);
            self.lineage.own.forget(first, first + pages);
            self.forget_touched(first, first + pages);
        }
        for (va, bytes) in self.space.take_forgotten() {
            self.lineage.own.forget(va >> PAGE_SHIFT, va.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        }
    }
}
