//! [`AddressSpaces`]: the implementation of [`Space`] for one table format.

use ::policy::cause::Cause;
use ::policy::size::PageSize;
use ::policy::verdict::Verdict;
use paging::{Attributes, Census, Error, Format, InputAddress, Mapping, Sizes};
use trace::Event;

use super::buddy::Physical;
use super::error::SpaceError;
use super::interface::Space;
use super::leaf::{LEVELS, Leaf, Path};
use super::memory::Memory;
use super::observations::{LeftOut, Observations};
use super::part::{Part, contiguous_memory};
use super::physical_layout::is_memory;
use super::process::LeafRules;
use super::processes::Processes;
use super::scan::ScanClock;
use super::swap_cache::SwapCache;
use super::vma::{Advice, AtFork, Backing, Locked, Vma};
use crate::accounting::Accounting;
use crate::address::Pa;
use crate::call::{PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::costs::Costs;
use crate::kernel::Kernel;
use crate::policy::{MappingUnit, Plan};

/// Address spaces that share one machine's memory and one table format.
pub(super) struct AddressSpaces<F: Format> {
    pub(super) plan: Plan,
    pub(super) kernel: Kernel,
    /// Base page size in bytes.
    pub(super) base: u64,
    /// The end of user addresses (`TASK_SIZE`).
    pub(super) user_end: u64,
    pub(super) processes: Processes<F>,
    pub(super) memory: Memory,
    /// Pages in swap and pages of shared memory.
    pub(super) swap_cache: SwapCache,
    /// Shared memory objects that lost a mapping in the current call.
    pub(super) unmapped_objects: Vec<u64>,
    /// The clock hand of reclaim: the next address to check. `None` until memory is short for the first time.
    pub(super) clock_hand: Option<Pa>,
    pub(super) khugepaged: ScanClock,
    pub(super) costs: Costs,
    /// Facts collected for the verdict.
    pub(super) observations: Observations,
}

impl<F: Format> AddressSpaces<F> {
    pub(super) fn new(format: F, plan: &Plan, physical: &Physical) -> Result<AddressSpaces<F>, Error> {
        let mut costs = Costs { processes: 1, processes_peak: 1, ..Costs::default() };
        Ok(AddressSpaces {
            kernel: Kernel::default(),
            base: plan.base_bytes,
            user_end: user_end(&format),
            processes: Processes::new(format, LeafRules::new(&format, plan), &mut costs)?,
            memory: Memory::new(physical, plan.base_bytes),
            swap_cache: SwapCache::default(),
            unmapped_objects: Vec::new(),
            clock_hand: None,
            khugepaged: ScanClock::default(),
            costs,
            observations: Observations::new(plan),
            plan: plan.clone(),
        })
    }

    /// Rounds the end of a range up to a whole base page. An end in the last base page of the 64-bit address space is
    /// rounded down instead, because 2^64 does not fit in a `u64`.
    pub(super) fn base_end(&self, end: u64) -> u64 {
        end.min(self.base.wrapping_neg()).next_multiple_of(self.base)
    }

    pub(super) fn attributes(&self, protection: u64, writable: bool) -> Attributes {
        self.processes.running.attributes(protection, writable)
    }

    /// The leaf that maps `va`, if any.
    pub(super) fn leaf(&self, va: u64) -> Option<Leaf> {
        self.processes.running.leaf(va)
    }

    /// The memory that the running process maps in a range, leaf by leaf, clipped to the range.
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

    /// Splits the THP leaf that spans an address at which a VMA now begins or ends.
    pub(super) fn split_at_edge(&mut self, va: u64) -> Result<(), Error> {
        self.processes.running.split_at_edge(va, va & !(self.base - 1), &mut self.costs)
    }

    /// Unmaps a range and frees its memory and its swap slots.
    pub(super) fn drop_range(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        self.drop_swapped(begin, end);
        let parts = self.parts(begin, end)?;
        self.unmap(begin, end, &parts)?;
        for (pa, bytes) in contiguous_memory(&parts) {
            self.memory.unmap(pa, bytes, self.processes.number, &mut self.costs);
        }
        Ok(())
    }

    /// Unmaps a range and releases its reservations. `parts` must be all mapped parts of the range.
    pub(super) fn unmap(&mut self, begin: u64, end: u64, parts: &[Part]) -> Result<(), Error> {
        self.release_reservations(begin, end);
        if parts.is_empty() { Ok(()) } else { self.processes.running.unmap(begin, end, parts, &mut self.costs) }
    }

    /// Records a store to the page at an address.
    fn note_store(&mut self, va: u64) {
        if let Some(pa) = self.processes.running.physical(va).filter(|pa| is_memory(*pa)) {
            self.memory.folios.note_store(pa);
        }
    }

    pub(super) fn release_reservations(&mut self, begin: u64, end: u64) {
        self.memory.release_reservations(self.processes.number, begin, end);
    }
}

impl<F: Format + Send> Space for AddressSpaces<F> {
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError> {
        let mut faulted = false;
        // A store faults at most twice: if the first fault maps the page write-protected, the second one copies it or
        // makes it writable.
        for _ in 0..2 {
            if let Some(leaf) = self.leaf(va).filter(|leaf| leaf.writable || !store) {
                // The access that caused the fault does not count as a touch.
                if !faulted {
                    self.touch(va);
                }
                if store && self.plan.has_large_folios() {
                    self.note_store(va);
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
        self.apply(event)?;
        self.free_objects();
        self.memory.count_held(&mut self.costs);
        Ok(())
    }

    fn write_for_program(&mut self, va: u64) -> Result<(), SpaceError> {
        let may_write = self.processes.running.vmas.find(va).is_some_and(|(_, vma)| vma.protection & PROT_WRITE != 0);
        let is_present = match self.leaf(va) {
            Some(leaf) => leaf.writable || !may_write,
            None => false,
        };
        if is_present {
            return Ok(());
        }
        let faults = self.costs.fault_counts();
        let written = self.fault(va, true);
        self.costs.set_fault_counts(faults);
        self.memory.count_held(&mut self.costs);
        written
    }

    fn inspect(&mut self, begin: u64, bytes: u64, by_compare: bool) -> Result<(), SpaceError> {
        if let Some((begin, end)) = self.checked(begin, bytes) {
            self.observations.compare_inspects = by_compare;
            self.witness(begin, end)?;
        }
        Ok(())
    }

    fn note_answered(&mut self, call: &str) {
        self.observations.count_answered(call);
    }

    fn note_cause(&mut self, cause: &Cause, bytes: u64) {
        self.observations.note(cause, bytes);
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
        if let MappingUnit::Direct(bytes) = self.plan.mapping_unit {
            return self.map_directly(begin, end, bytes);
        }
        let (protection, end) = (PROT_READ | PROT_WRITE | PROT_EXEC, self.base_end(end));
        let assumed = Vma {
            end,
            protection,
            backing: Backing::Inferred,
            advice: Advice::None,
            accounting: Accounting::Accounted,
            anon: None,
            at_fork: AtFork::Copied,
            locked: Locked::No,
        };
        self.processes.running.vmas.insert(begin, assumed);
        Ok(())
    }

    fn take_cleared_accessed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.processes.running.cleared_accessed)
    }

    fn set_kernel(&mut self, kernel: Kernel) {
        let large = kernel.smaller_folios.iter().filter_map(|bytes| PageSize::new(*bytes).ok()).min();
        if let (MappingUnit::Mthp(_), Some(large)) = (self.plan.mapping_unit, large) {
            // With smaller fallback sizes, even a mapping below the policy's size can get a large folio.
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
            self.costs.processes += 1;
            self.count_processes();
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
        self.free_objects();
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
        self.observations.left_out
    }
}

/// The end of user addresses. If the format has two halves, this is the end of the lower half.
fn user_end(format: &impl Format) -> u64 {
    let geometry = format.geometry();
    let fits = |bits: &u32| geometry.is_canonical(InputAddress((1 << bits) - 1));
    1 << (30..=63).rev().find(fits).unwrap_or(30)
}
