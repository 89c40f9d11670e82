//! Address spaces over the same memory, with tables of one format, and their interface to a simulation.

use ::policy::cause::Cause;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use paging::{Attributes, Census, Error, Format, InputAddress, Mapping, Sizes};
use trace::Event;

use super::buddy::Physical;
use super::cost::Costs;
use super::error::SpaceError;
use super::interface::Space;
use super::leaf::{LEVELS, Leaf, Path};
use super::memory::Memory;
use super::part::{Part, contiguous};
use super::process::LeafRules;
use super::processes::Processes;
use super::scan::Scan;
use super::seen::{LeftOut, Seen};
use super::swap_cache::SwapCache;
use super::vma::{Advice, Backing, Vma};
use crate::address::Pa;
use crate::call::{PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::kernel::Kernel;
use crate::policy::{Granule, Plan};
use crate::promise::Promise;

/// Address spaces over the same memory, with tables of one format.
pub(super) struct Paged<F: Format> {
    pub(super) plan: Plan,
    pub(super) kernel: Kernel,
    /// Base page size in bytes.
    pub(super) base: u64,
    /// The end of user addresses (`TASK_SIZE`).
    pub(super) user_end: u64,
    pub(super) processes: Processes<F>,
    pub(super) memory: Memory,
    /// Pages in swap and of shared memory.
    pub(super) swap_cache: SwapCache,
    /// The position of reclaim; `None` while memory was never short.
    pub(super) hand: Option<Pa>,
    pub(super) khugepaged: Scan,
    pub(super) costs: Costs,
    /// The observations made before memory was freed.
    pub(super) seen: Seen,
}

impl<F: Format> Paged<F> {
    pub(super) fn new(format: F, plan: &Plan, physical: &Physical) -> Result<Paged<F>, Error> {
        let mut costs = Costs { processes: 1, ..Costs::default() };
        Ok(Paged {
            kernel: Kernel::default(),
            base: plan.base_bytes,
            user_end: user_end(&format),
            processes: Processes::new(format, LeafRules::new(&format, plan), &mut costs)?,
            memory: Memory::new(physical, plan.base_bytes),
            swap_cache: SwapCache::default(),
            hand: None,
            khugepaged: Scan::default(),
            costs,
            seen: Seen::new(plan),
            plan: plan.clone(),
        })
    }

    /// The end of the base page that contains the end of a range; limited to the last base page.
    pub(super) fn base_end(&self, end: u64) -> u64 {
        end.min(self.base.wrapping_neg()).next_multiple_of(self.base)
    }

    pub(super) fn attributes(&self, protection: u64, writable: bool) -> Attributes {
        self.processes.running.attributes(protection, writable)
    }

    /// The leaf that maps `va`, if it is mapped.
    pub(super) fn leaf(&self, va: u64) -> Option<Leaf> {
        self.processes.running.leaf(va)
    }

    /// The memory that the running process maps in a range, leaf by leaf, cut to the range.
    pub(super) fn parts(&self, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        self.processes.running.parts(begin, end)
    }

    pub(super) fn map(
        &mut self,
        va: u64,
        pa: Pa,
        bytes: u64,
        sizes: Sizes,
        attributes: Attributes,
    ) -> Result<(), Error> {
        self.processes.running.map(&Mapping { va: InputAddress(va), pa, bytes, attributes, sizes }, &mut self.costs)
    }

    /// Changes the attributes of the memory mapped in a range.
    pub(super) fn protect(&mut self, begin: u64, end: u64, attributes: Attributes) -> Result<(), Error> {
        self.processes.running.protect(begin, end, attributes, &mut self.costs)
    }

    /// Splits the leaf of THP that spans an address at which a VMA now begins or ends.
    pub(super) fn split_at_edge(&mut self, va: u64) -> Result<(), Error> {
        self.processes.running.split_at_edge(va, va & !(self.base - 1), &mut self.costs)
    }

    /// Unmaps a range and frees its memory, including swapped pages.
    pub(super) fn drop_range(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        self.forget_swapped(begin, end);
        let parts = self.parts(begin, end)?;
        self.unmap(begin, end, &parts)?;
        for (pa, bytes) in contiguous(&parts) {
            self.memory.give_back(pa, bytes, self.processes.number, &mut self.costs);
        }
        Ok(())
    }

    /// Unmaps the parts, which are everything that is mapped in a range.
    pub(super) fn unmap(&mut self, begin: u64, end: u64, parts: &[Part]) -> Result<(), Error> {
        self.give_up_reservations(begin, end);
        if parts.is_empty() { Ok(()) } else { self.processes.running.unmap(begin, end, parts, &mut self.costs) }
    }

    pub(super) fn give_up_reservations(&mut self, begin: u64, end: u64) {
        self.memory.give_up_reservations(self.processes.number, begin, end);
    }
}

impl<F: Format + Send> Space for Paged<F> {
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError> {
        let mut faulted = false;
        // A read can map the zero page, and a write replaces it: at most one fault of each kind.
        for _ in 0..2 {
            if let Some(leaf) = self.leaf(va).filter(|leaf| leaf.writable || !store) {
                // The fault itself does not count as a second touch.
                if !faulted {
                    self.touch(va);
                }
                return Ok(Leaf { faulted, ..leaf });
            }
            self.fault(va, store)?;
            self.memory.count_held(&mut self.costs);
            faulted = true;
        }
        let leaf = self.leaf(va);
        leaf.map(|leaf| Leaf { faulted, ..leaf }).ok_or(SpaceError::OutOfMemory { va, base_bytes: self.base })
    }

    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64 {
        self.processes.running.run_bytes(va, leaf)
    }

    fn path(&self, va: u64) -> Path {
        self.processes.running.path(va)
    }

    fn physical(&self, va: u64) -> Option<Pa> {
        self.processes.running.physical(va)
    }

    fn shifts(&self) -> [u8; LEVELS] {
        self.processes.running.shifts()
    }

    fn event(&mut self, event: &Event) -> Result<(), SpaceError> {
        self.hear(event)?;
        self.memory.count_held(&mut self.costs);
        Ok(())
    }

    fn write_for(&mut self, va: u64) -> Result<(), SpaceError> {
        let may_write = self.processes.running.vmas.find(va).is_some_and(|(_, vma)| vma.protection & PROT_WRITE != 0);
        let is_there = match self.leaf(va) {
            Some(leaf) => leaf.writable || !may_write,
            None => false,
        };
        if is_there {
            return Ok(());
        }
        let faults = self.costs.fault_counts();
        let written = self.fault(va, true);
        self.costs.set_fault_counts(faults);
        self.memory.count_held(&mut self.costs);
        written
    }

    fn look_at(&mut self, begin: u64, bytes: u64, is_looked_at: bool) -> Result<(), SpaceError> {
        if let Some((begin, end)) = self.checked(begin, bytes) {
            self.seen.is_looked_at = is_looked_at;
            self.witness(begin, end)?;
        }
        Ok(())
    }

    fn note_answered(&mut self, said: &str) {
        self.seen.answer(said);
    }

    fn note_cause(&mut self, cause: &Cause, bytes: u64) {
        self.seen.note(cause, bytes);
    }

    fn note_refused(&mut self) {
        self.costs.refused_calls += 1;
    }

    fn take_invalidations(&mut self) -> Vec<(u64, u64)> {
        let dropped = std::mem::take(&mut self.processes.running.tables.log_mut().0);
        self.costs.invalidations += dropped.len() as u64;
        dropped
    }

    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError> {
        if let Granule::Direct(bytes) = self.plan.granule {
            return self.map_directly(begin, end, bytes);
        }
        let (protection, end) = (PROT_READ | PROT_WRITE | PROT_EXEC, self.base_end(end));
        let assumed = Vma {
            end,
            protection,
            backing: Backing::Inferred,
            advice: Advice::None,
            promise: Promise::Kept,
            anon: None,
        };
        self.processes.running.vmas.insert(begin, assumed);
        Ok(())
    }

    fn take_forgotten(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.processes.running.forgotten)
    }

    fn set_kernel(&mut self, kernel: Kernel) {
        let large = kernel.smaller_folios.iter().filter_map(|bytes| PageSize::new(*bytes).ok()).min();
        if let (Granule::Mthp(_), Some(large)) = (self.plan.granule, large) {
            // The smallest mapping that can have a folio is then smaller.
            self.plan.mechanism.large = self.plan.mechanism.large.min(large);
        }
        self.kernel = kernel;
    }

    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError> {
        self.scan_until(instructions)
    }

    fn fork(&mut self) -> Result<u32, SpaceError> {
        self.fork_process()
    }

    fn exec(&mut self, shares: bool) -> Result<u32, SpaceError> {
        let (before, next) = (self.processes.number, self.processes.add_program()?);
        self.processes.enter(next, &mut self.costs);
        if shares {
            self.costs.processes += 1
        } else {
            self.processes.remove(before, &mut self.costs)
        }
        Ok(next)
    }

    fn enter(&mut self, process: u32) -> bool {
        self.processes.enter(process, &mut self.costs)
    }

    fn end(&mut self, process: u32) -> Result<(), SpaceError> {
        self.end_process(process)?;
        self.memory.count_held(&mut self.costs);
        Ok(())
    }

    fn costs(&self) -> Costs {
        self.costs.clone()
    }

    fn census(&self) -> Result<Census, Error> {
        self.processes.census()
    }

    fn census_at_ends(&self) -> Result<Census, Error> {
        self.processes.census_at_ends()
    }

    fn verdict(&self) -> Result<Verdict, Error> {
        self.judge()
    }

    fn left_out(&self) -> LeftOut {
        self.unwitnessed()
    }
}

/// The end of user addresses: the end of the lower half, if a format has two.
fn user_end(format: &impl Format) -> u64 {
    let geometry = format.geometry();
    let fits = |bits: &u32| geometry.is_canonical(InputAddress((1 << bits) - 1));
    1 << (30..=63).rev().find(fits).unwrap_or(30)
}
