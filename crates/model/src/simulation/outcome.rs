//! The outcome of a simulation: the cost of a trace on a machine under a policy.

use ::policy::size::PageSize;
use ::policy::verdict::{Holding, Verdict};
use serde::Serialize;
use trace::PAGE_SHIFT;

use super::core::{Counts, add};
use super::slot::LANES;
use super::state::Simulation;
use crate::costs::Costs;
use crate::machine::{KernelCosts, KernelCycles};
use crate::policy::ModelPolicy;
use crate::space::LeftOut;
use crate::walk::Walks;

/// The misses of a TLB level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Misses of instruction fetches.
    pub fetch: u64,
    /// Misses of loads; of all data accesses if stores use the same TLBs.
    pub load: u64,
    /// Misses of stores, if they have separate TLBs.
    pub store: u64,
    /// Misses by page size, smallest first.
    pub by_size: Vec<SizeMisses>,
}

/// The misses of one page size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeMisses {
    /// Size of the leaf, or of its contiguous group, in bytes.
    pub page_bytes: u64,
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

    /// The sum over all kinds of accesses.
    pub fn total(&self) -> u64 {
        self.fetch + self.load + self.store
    }
}

/// How many page-table entries the walker found in a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WalkReferences {
    /// The name of the cache, or `memory`.
    pub cache: String,
    /// Number of entries read from it.
    pub references: u64,
}

/// Memory that is mapped with one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// Size of a leaf in bytes.
    pub leaf_bytes: u64,
    /// Size of the contiguous group, or of the leaf, in bytes.
    pub group_bytes: u64,
    /// Number of bytes that are mapped with these sizes.
    pub bytes: u64,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of the machine.
    pub machine: String,
    /// The simulated policy.
    pub policy: ModelPolicy,
    /// The format of the page tables.
    pub table_format: String,
    /// Base page size in bytes.
    pub base_bytes: u64,
    /// The page size that the policy requests, in bytes.
    pub page_bytes: u64,
    /// Number of threads; each has a hardware thread.
    pub threads: usize,
    /// Number of accesses in the trace. The recorder defines what counts as one access.
    pub accesses: u64,
    /// Number of runs of accesses to one 4K page.
    pub runs: u64,
    /// Number of instructions, if the trace counts them.
    pub instructions: Option<u64>,
    /// Misses in the first level.
    pub first_level: Misses,
    /// Misses in both the first and the second level.
    pub second_level: Misses,
    /// Misses in all of the first three levels, then in all of the first four, as far as the machine has these levels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_levels: Vec<Misses>,
    /// Number of page walks.
    pub walks: u64,
    /// Number of entries that walks read.
    pub walk_references: u64,
    /// How many of these entries each cache had, the nearest first.
    pub found: Vec<WalkReferences>,
    /// Cycles of all walks, if they never overlap.
    pub walk_cycles: u64,
    /// Cycles of hits in the levels after the first.
    pub second_hit_cycles: u64,
    /// Cycles of the kernel at all faults, without reads from swap, if the machine file has the costs.
    pub kernel_cycles: Option<KernelCycles>,
    /// Number of walks that the machine can do at the same time.
    pub walkers: u32,
    pub faults: u64,
    /// Mapped memory at the end, in bytes.
    pub resident_bytes: u64,
    /// Bytes of the 4K pages that were touched and are still mapped at the end.
    pub touched_bytes: u64,
    /// The peak of touched bytes that were mapped at the same time.
    pub touched_peak_bytes: u64,
    /// The costs of demand paging.
    #[serde(flatten)]
    pub costs: Costs,
    /// The memory that the tables map at the end, by size.
    pub mapped: Vec<Mapped>,
    /// The sum of the memory that each process had mapped when it ended, for the first process at the end of the trace.
    pub mapped_at_ends: Vec<Mapped>,
    /// Whether the policy held, judged by the memory that was mapped at the end and by memory before it was freed.
    pub verdict: Verdict,
    /// The part of the verdict that `pagelab compare` would have left out.
    pub left_out: LeftOut,
    /// Whether addresses of the trace were moved because the machine has fewer user address bits.
    pub moved_addresses: bool,
    /// Why the simulation ended before the end of the trace.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Whether the simulation reached the end of the trace. Otherwise no figure is valid.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none()
    }

    /// Upper bound of the cycles lost to translation: one walk at a time, and no overlap with other work.
    pub fn max_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles
    }

    /// Lower bound of the cycles lost to translation: all walkers work all the time.
    pub fn min_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles / u64::from(self.walkers)
    }
}

impl Simulation {
    /// The outcome of everything simulated so far.
    pub fn outcome(&self) -> Result<Outcome, paging::Error> {
        let sum = |of: &dyn Fn(&Counts) -> [[u64; 64]; LANES]| {
            let mut all = [[0; 64]; LANES];
            self.hardware.cores.iter().for_each(|core| add(&mut all, &of(&core.counts)));
            Misses::of(&all)
        };
        let missed_up_to = |level: u8| sum(&|counts| counts.missed_up_to(level));
        let walks: Vec<Walks> = self.hardware.cores.iter().map(|core| core.walker.counted()).collect();
        let total = |of: fn(&Walks) -> u64| walks.iter().map(of).sum::<u64>();
        let names =
            self.setup.machine.walker.caches.iter().map(|cache| cache.name.clone()).chain(["memory".to_owned()]);
        let found = names.enumerate().map(|(index, cache)| WalkReferences {
            cache,
            references: walks.iter().map(|walks| walks.found[index]).sum(),
        });
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
        let second_hit_cycles = self.hardware.cores.iter().map(|core| core.counts.second_hit_cycles).sum();
        let costs = Costs { forks: self.processes.unrecorded_forks, ..self.space.costs() };
        let at_faults = |kernel: &KernelCosts| kernel.at_faults(&costs, self.setup.plan.base_bytes);
        Ok(Outcome {
            machine: self.setup.machine.name.clone(),
            policy: self.setup.policy.clone(),
            table_format: self.setup.plan.format.name.clone(),
            base_bytes: self.setup.plan.base_bytes,
            page_bytes: self.setup.plan.page_bytes(),
            threads: self.hardware.cores.len(),
            accesses: self.accesses,
            runs: self.runs,
            instructions: (self.instructions != 0).then_some(self.instructions),
            first_level: sum(&|counts| counts.first_misses),
            second_level: missed_up_to(2),
            further_levels: (3..=self.setup.levels()).map(missed_up_to).collect(),
            walks: total(|walks| walks.walks),
            walk_references: total(|walks| walks.references),
            found: found.collect(),
            walk_cycles: total(|walks| walks.cycles),
            second_hit_cycles,
            kernel_cycles: self.setup.machine.kernel_costs.as_ref().map(at_faults),
            walkers: self.setup.machine.walker.walkers,
            faults: costs.faults(),
            resident_bytes: costs.resident_bytes(),
            touched_bytes: self.processes.touched_pages << PAGE_SHIFT,
            touched_peak_bytes: self.processes.touched_peak_pages << PAGE_SHIFT,
            costs,
            mapped: mapped(census),
            mapped_at_ends: mapped(self.space.census_at_ends()?),
            left_out: self.space.left_out(),
            verdict: match &self.stopped {
                None => self.space.verdict()?,
                Some(_) => unknown_verdict(),
            },
            moved_addresses: self.relocation.moved,
            stopped: self.stopped.as_ref().map(ToString::to_string),
        })
    }
}

/// The verdict of a simulation that did not reach the end of the trace.
fn unknown_verdict() -> Verdict {
    Verdict {
        holding: Holding::Unknown,
        concerned_bytes: 0,
        covered_bytes: 0,
        peak: None,
        causes: Vec::new(),
        answered: Vec::new(),
    }
}
