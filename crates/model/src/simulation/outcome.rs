//! What a trace costs on a machine under a policy.

use ::policy::size::PageSize;
use ::policy::verdict::{Holding, Verdict};
use serde::Serialize;
use trace::PAGE_SHIFT;

use super::core::{Counts, add};
use super::slot::LANES;
use super::state::Simulation;
use crate::machine::{KernelCosts, KernelCycles};
use crate::policy::ModelPolicy;
use crate::space::{Costs, LeftOut};
use crate::walk::Walks;

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
    /// Bytes of a base page.
    pub base_bytes: u64,
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
    /// What neither of the first two levels held.
    pub second_level: Misses,
    /// What no level up to the third held, and so on, where the machine has more than two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_levels: Vec<Misses>,
    /// Walks.
    pub walks: u64,
    /// Entries that walks read.
    pub walk_references: u64,
    /// Where they were found, the nearest cache first.
    pub found: Vec<Found>,
    /// Cycles of all walks, one after the other.
    pub walk_cycles: u64,
    /// Cycles of hits behind the first level.
    pub second_hit_cycles: u64,
    /// Cycles of the kernel at all faults, if the machine says what they take; without those that read from swap.
    pub kernel_cycles: Option<KernelCycles>,
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
    /// What `pagelab compare` would have left out of it.
    pub left_out: LeftOut,
    /// Addresses of the trace were moved, because the machine's programs have fewer bits of them.
    pub moved_addresses: bool,
    /// Why the simulation ended before the trace did.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Whether the simulation came to the end of the trace: if not, no figure is an answer.
    pub fn is_whole(&self) -> bool {
        self.stopped.is_none()
    }

    /// Cycles that translation takes if nothing is done at the same time.
    pub fn most_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles
    }

    /// Cycles that translation takes if all walkers are always busy.
    pub fn least_lost_cycles(&self) -> u64 {
        self.second_hit_cycles + self.walk_cycles / u64::from(self.walkers)
    }
}

impl Simulation {
    /// What everything has cost.
    ///
    /// # Errors
    /// A mapping lies where the tables of the machine have no addresses.
    pub fn outcome(&self) -> Result<Outcome, paging::Error> {
        let sum = |of: &dyn Fn(&Counts) -> [[u64; 64]; LANES]| {
            let mut all = [[0; 64]; LANES];
            self.hardware.cores.iter().for_each(|core| add(&mut all, &of(&core.counts)));
            Misses::of(&all)
        };
        let behind = |level: u8| sum(&|counts| counts.missed_up_to(level));
        let walks: Vec<Walks> = self.hardware.cores.iter().map(|core| core.walker.counted()).collect();
        let total = |of: fn(&Walks) -> u64| walks.iter().map(of).sum::<u64>();
        let names =
            self.setup.machine.walker.caches.iter().map(|cache| cache.name.clone()).chain(["memory".to_owned()]);
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
        let second_hit_cycles = self.hardware.cores.iter().map(|core| core.counts.second_hit_cycles).sum();
        let costs = Costs { forks: self.lineage.missed_forks, ..self.space.costs() };
        let at_faults = |kernel: &KernelCosts| {
            kernel.cycles(costs.faults(), costs.zeroed_at_faults(self.setup.plan.base_bytes), costs.copied_bytes)
        };
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
            second_level: behind(2),
            further_levels: (3..=self.setup.levels()).map(behind).collect(),
            walks: total(|walks| walks.walks),
            walk_references: total(|walks| walks.references),
            found: found.collect(),
            walk_cycles: total(|walks| walks.cycles),
            second_hit_cycles,
            kernel_cycles: self.setup.machine.kernel_costs.as_ref().map(at_faults),
            walkers: self.setup.machine.walker.walkers,
            faults: costs.faults(),
            resident_bytes: costs.resident_bytes(),
            touched_bytes: self.lineage.touched_pages << PAGE_SHIFT,
            touched_peak_bytes: self.lineage.touched_peak_pages << PAGE_SHIFT,
            costs,
            mapped: mapped(census),
            mapped_at_ends: mapped(self.space.census_at_ends()?),
            left_out: self.space.left_out(),
            verdict: match &self.stopped {
                None => self.space.verdict()?,
                Some(_) => not_known(),
            },
            moved_addresses: self.fold.moved,
            stopped: self.stopped.as_ref().map(ToString::to_string),
        })
    }
}

/// The verdict where a simulation did not come to its end.
fn not_known() -> Verdict {
    Verdict {
        holding: Holding::Unknown,
        concerned_bytes: 0,
        covered_bytes: 0,
        peak: None,
        causes: Vec::new(),
        answered: Vec::new(),
    }
}
