//! [`Simulation`]: the state of a simulation, and how the steps of a trace change it.

use std::ops::Range;

use ::policy::Mechanism;
use trace::{Call, Chunk, Event, PAGE_SHIFT};

use super::hardware::Hardware;
use super::lookup::Lookups;
use super::paths::Paths;
use super::processes::Processes;
use super::setup::Setup;
use super::slot::{FURTHER_LEVELS, FurtherSlot, LANES, MissData, NONE, Slot};
use crate::layout::{LayoutParameters, Platform, RandomBits, Randomisation};
use crate::machine::{AccessKind, Machine};
use crate::policy::{MappingUnit, ModelPolicy, Unsupported};
use crate::relocation::Relocation;
use crate::space::{self, Kernel, Leaf, Physical, Space, SpaceError};
use crate::walk::LeafEntry;

/// The kind of access of each lane.
const LANE_KINDS: [AccessKind; LANES] = [AccessKind::Fetch, AccessKind::Load, AccessKind::Store];

/// A simulation of a machine under a policy, with the cost of the trace so far.
pub struct Simulation {
    pub(super) setup: Setup,
    pub(super) space: Box<dyn Space>,
    pub(super) hardware: Hardware,
    pub(super) processes: Processes,
    pub(super) lookups: Lookups,
    pub(super) paths: Paths,
    pub(super) relocation: Relocation,
    /// The randomisation of the program's layout, if any.
    randomisation: Option<Randomisation>,
    /// Number of pages of the vDSO and its data, if the kernel settings have it.
    vdso_pages: Option<u64>,
    pub(super) accesses: u64,
    pub(super) runs: u64,
    /// Number of recorded instructions.
    pub(super) instructions: u64,
    /// Why the simulation has stopped, if it has.
    pub(super) stopped: Option<SpaceError>,
}

impl Simulation {
    /// A simulation at the start of a trace.
    pub fn new(machine: &Machine, policy: &ModelPolicy, physical: &Physical) -> Result<Simulation, Unsupported> {
        let setup = Setup::new(machine, policy, physical.seed)?;
        let space = space::new(&setup.plan, physical).map_err(|error| setup.unsupported(error))?;
        let hardware = Hardware::new(machine, space.shifts()).map_err(|error| setup.unsupported(error))?;
        Ok(Simulation {
            relocation: Relocation::new(&setup.plan.format),
            randomisation: None,
            vdso_pages: None,
            setup,
            space,
            hardware,
            processes: Processes::default(),
            lookups: Lookups::default(),
            paths: Paths::default(),
            accesses: 0,
            runs: 0,
            instructions: 0,
            stopped: None,
        })
    }

    /// Whether the policy concerns the kernel's direct map. Addresses are then physical.
    pub fn is_direct(&self) -> bool {
        matches!(self.setup.plan.mapping_unit, MappingUnit::Direct(_))
    }

    /// The layout parameters of programs of an architecture.
    pub(crate) fn parameters(&self, architecture: &str) -> LayoutParameters {
        let platform =
            Platform::of(architecture, self.setup.plan.base_bytes, self.setup.plan.pmd_bytes, self.vdso_pages);
        LayoutParameters { pool: self.pool_mechanism(), randomisation: self.randomisation, platform }
    }

    /// Whether the program has a randomised layout.
    pub(crate) fn has_random_layout(&self) -> bool {
        self.randomisation.is_some()
    }

    /// The mechanism of a hugetlb policy; `None` for other policies.
    pub(crate) fn pool_mechanism(&self) -> Option<Mechanism> {
        Some(self.setup.plan.mechanism).filter(|mechanism| mechanism.hugetlb)
    }

    /// Gives the program one of Linux's randomised layouts, which `seed` selects.
    #[must_use]
    pub fn with_layout(self, seed: u64) -> Simulation {
        let bits = RandomBits::of_addresses(self.relocation.user_bits());
        Simulation { randomisation: Some(Randomisation { seed, bits }), ..self }
    }

    /// Assigns the next numbers to pages, in order.
    pub fn add_pages(&mut self, pages: &[u64]) {
        for page in pages {
            let page = if self.is_direct() { *page } else { self.relocation.address(page << PAGE_SHIFT) >> PAGE_SHIFT };
            self.processes.running.add(page);
        }
        self.processes.running.resize_slots();
    }

    /// Adds memory that no event describes.
    pub fn assume(&mut self, begin: u64, end: u64) {
        if self.stopped.is_none() {
            let begin_to = if self.is_direct() { begin } else { self.relocation.address(begin) };
            self.stopped = self.space.assume(begin_to, begin_to.saturating_add(end - begin)).err();
        }
    }

    /// Processes a system call.
    pub fn event(&mut self, event: &Event) {
        // The trace of a forked process describes the memory that it inherited, which is known already.
        let is_known_from_parent = self.processes.running.is_inherited && matches!(event.call, Call::Region { .. });
        // When a process that shares its parent's memory executes a program, that memory stays.
        let keeps_memory = self.processes.shares() && matches!(event.call, Call::Exec { .. });
        if self.stopped.is_none() && !is_known_from_parent && !keeps_memory {
            let event = if self.is_direct() { event.clone() } else { self.relocation.event(event) };
            let moved = match event.call {
                Call::Mremap { address, old_bytes, .. } if event.result != address as i64 => {
                    self.processes.running.touched_in(address, old_bytes)
                }
                _ => Vec::new(),
            };
            let applied = self.space.event(&event);
            self.apply_invalidations();
            self.carry_touched(moved, event.result as u64);
            self.stopped = applied.err();
        }
    }

    /// Sets the kernel settings that are not part of the policy. Fails if the machine does not support the fallback folios, if they
    /// are larger than those of the policy, or if `max_ptes_none` is not below the number of pages of a PMD.
    pub fn with_kernel(mut self, kernel: Kernel) -> Result<Simulation, Unsupported> {
        self.setup.plan.admits_kernel(&kernel).map_err(|reason| self.setup.unsupported(reason))?;
        self.vdso_pages = kernel.vdso_pages;
        self.space.set_kernel(kernel);
        Ok(self)
    }

    /// Sets the number of instructions that a thread has executed so far to `count`, and adds `recorded` to the recorded ones.
    pub fn instructions(&mut self, thread: usize, count: u64, recorded: u64) {
        self.instructions = self.instructions.saturating_add(recorded);
        self.processes.running.note_instructions(thread, count);
        if self.stopped.is_none() {
            self.stopped = self.space.advance(self.now()).err();
            self.apply_invalidations();
        }
    }

    /// Simulates a range of the runs of a chunk; `numbers` are the numbers of the chunk's pages.
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

    /// Handles an access to a page whose slot is unknown, because it was not touched since its mapping changed. It may fault.
    #[cold]
    #[inline(never)]
    pub(super) fn resolve(
        &mut self,
        thread: usize,
        lane: usize,
        number: u32,
        stores: u32,
        loads_first: bool,
    ) -> Result<(), SpaceError> {
        let page = self.processes.running.pages[number as usize];
        let va = page << PAGE_SHIFT;
        let mut leaf = self.space.access(va, stores != 0 && !loads_first)?;
        if loads_first && !leaf.writable {
            // The load may have mapped the zero page or a page of a file, so the store may fault again.
            let faulted = leaf.faulted;
            leaf = self.space.access(va, true)?;
            leaf.faulted |= faulted;
        }
        if leaf.faulted {
            self.apply_invalidations();
            if self.setup.sees_neighbours {
                // The stored sizes of its neighbours may have changed.
                let (first, pages) = Setup::neighbours(page, leaf);
                self.processes.running.reset_each(first, first + pages);
            }
        }
        self.processes.note_touched(page, stores != 0);
        let (first, miss_data) = self.slot(lane, va, &leaf);
        self.processes.running.slots[lane].set(number, first, miss_data);
        if self.setup.has_further_levels {
            let further = self.further(lane, va, &leaf);
            self.processes.running.slots[lane].set_further(number, further);
        }
        // If the protection forbids the store, the recorded program got a signal at this point. The lookup is made
        // nevertheless.
        self.look_up_page(thread, lane, number)
    }

    /// Number of aligned, contiguous bytes around an address that hardware may store in one entry.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        // Checking the neighbours takes up to thirty translations.
        if self.setup.sees_neighbours { self.space.run_bytes(va, leaf) } else { leaf.group_bytes }
    }

    /// The places of a page in the levels after the second.
    fn further(&mut self, lane: usize, va: u64, leaf: &Leaf) -> [FurtherSlot; FURTHER_LEVELS] {
        let run_bytes = self.run_bytes(va, leaf);
        std::array::from_fn(|further| match self.setup.tlb_for(3 + further as u8, LANE_KINDS[lane], leaf, run_bytes) {
            (NONE, _) => FurtherSlot::default(),
            (tlb, shift) => {
                let key = self.hardware.keys.key(shift, va ^ self.processes.tag);
                FurtherSlot { key, index: (va >> shift) as u16, tlb }
            }
        })
    }

    /// The slot of a page and the data for its misses.
    fn slot(&mut self, lane: usize, va: u64, leaf: &Leaf) -> (Slot, MissData) {
        let serves = LANE_KINDS[lane];
        let run_bytes = self.run_bytes(va, leaf);
        let (first, first_shift) = self.setup.tlb_for(1, serves, leaf, run_bytes);
        let (second, second_shift) = self.setup.tlb_for(2, serves, leaf, run_bytes);
        let (tagged, keys) = (va ^ self.processes.tag, &mut self.hardware.keys);
        let path = self.space.path(va);
        let miss_data = MissData {
            entry: LeafEntry::of(&path),
            path: self.paths.number(&path),
            page: va >> PAGE_SHIFT,
            second_key: if second == NONE { 0 } else { keys.key(second_shift, tagged) },
            second_index: (va >> second_shift) as u16,
            second,
            size: leaf.group_bytes.trailing_zeros() as u8,
        };
        let set = self.hardware.first_level_sets.of(first, va >> first_shift);
        // Under hugetlb policies and with large folios, the first store to each page must be noticed, so it needs an unknown slot.
        let plan = &self.setup.plan;
        let knows_stores = !(plan.mechanism.hugetlb || plan.has_large_folios())
            || self.processes.running.has_stored_to(va >> PAGE_SHIFT);
        (Slot::new(keys.key(first_shift, tagged), first, set, leaf.writable && knows_stores), miss_data)
    }

    /// Drops what the kernel has invalidated from all TLBs, and resets the slots of those pages.
    pub(super) fn apply_invalidations(&mut self) {
        for (va, bytes) in self.space.take_invalidations() {
            let (first, pages) = (va >> PAGE_SHIFT, bytes.div_ceil(1 << PAGE_SHIFT));
            let tagged = first ^ self.processes.tag >> PAGE_SHIFT;
            self.hardware.drop_pages(tagged, tagged + pages);
            self.processes.running.reset(first, first + pages);
            self.forget_touched(first, first + pages);
        }
        for (va, bytes) in self.space.take_cleared_accessed() {
            self.processes.running.reset(va >> PAGE_SHIFT, va.saturating_add(bytes).div_ceil(1 << PAGE_SHIFT));
        }
    }
}
