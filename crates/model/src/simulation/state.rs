//! The state of a simulation, and the effect of a trace on it.

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

/// The kind of access of each lane, as TLBs see it.
const SERVES: [Serves; LANES] = [Serves::Fetch, Serves::Load, Serves::Store];

/// A machine under a policy, and the cost of the trace so far.
pub struct Simulation {
    pub(super) setup: Setup,
    pub(super) space: Box<dyn Space>,
    pub(super) hardware: Hardware,
    pub(super) lineage: Lineage,
    pub(super) lookups: Lookups,
    pub(super) paths: Paths,
    pub(super) fold: Fold,
    /// The random layout of its program, if it has one.
    draw: Option<Draw>,
    /// Number of pages of its kernel's vdso, if that was set.
    vdso_pages: Option<u64>,
    pub(super) accesses: u64,
    pub(super) runs: u64,
    /// Number of recorded instructions.
    pub(super) instructions: u64,
    pub(super) stopped: Option<SpaceError>,
}

impl Simulation {
    /// Creates a simulation that has not run yet.
    ///
    /// # Errors
    /// The machine does not support the policy.
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

    /// The address scheme of a program of an architecture.
    pub(crate) fn scheme(&self, architecture: &str) -> Scheme {
        let home = Home::of(architecture, self.setup.plan.base_bytes, self.setup.plan.pmd_bytes, self.vdso_pages);
        Scheme { pool: self.of_pool(), draw: self.draw, home }
    }

    /// Whether its program has a random layout.
    pub(crate) fn is_drawn(&self) -> bool {
        self.draw.is_some()
    }

    /// The policy, if it uses pages of a pool.
    pub(crate) fn of_pool(&self) -> Option<Mechanism> {
        Some(self.setup.plan.mechanism).filter(|mechanism| mechanism.hugetlb)
    }

    /// Uses one of Linux's random layouts, which `seed` selects.
    #[must_use]
    pub fn with_layout(self, seed: u64) -> Simulation {
        let bits = Bits::of_addresses(self.fold.user_bits());
        Simulation { draw: Some(Draw { seed, bits }), ..self }
    }

    /// Assigns numbers to further pages, in order.
    pub fn add_pages(&mut self, pages: &[u64]) {
        for page in pages {
            let page = if self.is_direct() { *page } else { self.fold.address(page << PAGE_SHIFT) >> PAGE_SHIFT };
            self.lineage.own.add(page);
        }
        self.lineage.own.resize_slots();
    }

    /// Adds memory that exists although no event describes it.
    pub fn assume(&mut self, begin: u64, end: u64) {
        if self.stopped.is_none() {
            let begin_to = if self.is_direct() { begin } else { self.fold.address(begin) };
            self.stopped = self.space.assume(begin_to, begin_to.saturating_add(end - begin)).err();
        }
    }

    /// Processes a system call.
    pub fn event(&mut self, event: &Event) {
        // A forked process inherited its memory from its parent; its trace describes it again.
        let is_told_before = self.lineage.own.is_inherited && matches!(event.call, Call::Region { .. });
        // A process that shares its parent's memory leaves it unchanged when it executes a program.
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

    /// Sets the kernel settings other than the policy.
    ///
    /// # Errors
    /// The machine does not support such folios, or they are larger than those of the policy; or `max_ptes_none`
    /// exceeds the pages of a PMD.
    pub fn with_kernel(mut self, kernel: Kernel) -> Result<Simulation, Unsupported> {
        self.setup.plan.admits_kernel(&kernel).map_err(|reason| self.setup.refused(reason))?;
        self.vdso_pages = kernel.vdso_pages;
        self.space.set_kernel(kernel);
        Ok(self)
    }

    /// Sets how many instructions a thread has executed so far; `recorded` more of them were recorded.
    pub fn instructions(&mut self, thread: usize, count: u64, recorded: u64) {
        self.instructions = self.instructions.saturating_add(recorded);
        self.lineage.own.note_instructions(thread, count);
        if self.stopped.is_none() {
            self.stopped = self.space.advance(self.now()).err();
            self.settle();
        }
    }

    /// Simulates runs of a thread; `numbers` are those of the chunk's pages.
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

    /// Handles a page that was not touched since its mapping changed: there may be a fault.
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
            // A load may map the zero page or a page of a file.
            let faulted = leaf.faulted;
            leaf = self.space.access(va, true)?;
            leaf.faulted |= faulted;
        }
        if leaf.faulted {
            self.settle();
            if self.setup.sees_neighbours {
                // Hardware may now store another size for the pages around it.
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
        // A store that the protection forbids is one for which the program received a signal.
        self.look_again(thread, lane, number)
    }

    /// Number of bytes around an address that hardware may store as one, whatever the tables say.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        // Checking the neighbours takes up to thirty translations.
        if self.setup.sees_neighbours { self.space.run_bytes(va, leaf) } else { leaf.group_bytes }
    }

    /// The position of a page in the levels after the second.
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
        // Pool policies need to know the first store to each page.
        let knows_stores = !self.setup.plan.mechanism.hugetlb || self.lineage.own.has_stored_to(va >> PAGE_SHIFT);
        (Slot::new(keys.key(first_shift, tagged), first, front, leaf.writable && knows_stores), rest)
    }

    /// Drops from all TLBs what the kernel has dropped, and resets the slots of those pages.
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
