//! Results of simulations of traces, as plain data ([`Document`]): the simulator fills it in, and this crate renders
//! it. Every figure is modelled.

mod shading;

use policy::verdict::{Holding, Verdict};

use crate::figure;
pub use crate::spread::{FigureSpread, Spread};

/// Everything that one page shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The heading.
    pub title: String,
    /// The command line, in words.
    pub invocation: Vec<String>,
    /// The version of pagelab.
    pub version: String,
    /// Settings common to all simulations: name and value.
    pub settings: Vec<(String, String)>,
    /// The traces, in the requested order.
    pub traces: Vec<Trace>,
    /// The simulated machines.
    pub machines: Vec<Machine>,
}

/// A trace and its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// File name of the trace.
    pub file: String,
    /// The recorded command, if the trace contains it.
    pub command: Vec<String>,
    /// Other information in the trace: name and value.
    pub facts: Vec<(String, String)>,
    /// Remarks that are needed to read the figures of this trace.
    pub notes: Vec<String>,
    /// The result of each machine.
    pub answers: Vec<MachineAnswer>,
    /// Each machine under each policy, machine by machine.
    pub cells: Vec<Cell>,
    /// Variation of figures over address space layouts, if requested: one entry for each machine and policy that was
    /// simulated.
    pub spreads: Vec<Spread>,
    /// Misses of LRU TLBs of every geometry, if requested.
    pub sweep: Option<Sweep>,
}

/// The result of a machine in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineAnswer {
    /// Name of the machine.
    pub machine: String,
    /// The result in a few sentences.
    pub sentence: String,
    /// For each policy: its name, the largest share of the time that translation can take, and the change of the time. The words are
    /// empty where the time is unknown.
    pub bounds: Vec<[String; 3]>,
}

/// One machine under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Name of the machine.
    pub machine: String,
    /// Name of the policy.
    pub policy: String,
    /// The cost, or why there is none.
    pub outcome: Result<Cost, Missing>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The machine does not support the policy; the text says why.
    Refused(String),
    /// The simulation ended before the trace did, so its counts are not a result; the text says why.
    Stopped(String),
}

impl Missing {
    /// Label shown in place of the result.
    pub fn label(&self) -> &'static str {
        match self {
            Missing::Refused(_) => "unsupported",
            Missing::Stopped(_) => "stopped early",
        }
    }

    pub fn why(&self) -> &str {
        match self {
            Missing::Refused(why) | Missing::Stopped(why) => why,
        }
    }
}

/// The cost of a trace on a machine under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The page size that the policy requests.
    pub page_bytes: u64,
    /// Whether the policy held.
    pub verdict: Verdict,
    /// The unit to which rates refer: a rate is a count per 1000 of it.
    pub per: Per,
    /// Misses in the first-level TLBs.
    pub first_level_misses: u64,
    /// Misses in the second-level TLB.
    pub second_level_misses: u64,
    /// Page walks.
    pub walks: u64,
    /// Page table entries read by walks.
    pub walk_references: u64,
    /// Cycles lost if all walkers are always busy.
    pub min_lost_cycles: u64,
    /// Cycles lost if walks are done one at a time.
    pub max_lost_cycles: u64,
    /// Cycles of the kernel at faults, if the machine file gives their costs.
    pub kernel: Option<KernelCycles>,
    /// Page faults.
    pub faults: u64,
    /// Maximum bytes mapped at once.
    pub resident_peak_bytes: u64,
    /// Maximum bytes of 4K pages touched and mapped at once.
    pub touched_peak_bytes: u64,
    /// Maximum bytes allocated but not mapped.
    pub held_unmapped_peak_bytes: u64,
    /// Maximum bytes of page tables, including those kept for THP leaves.
    pub table_peak_bytes: u64,
    /// Memory mapped at the end, by the kind of leaf, smallest leaves first.
    pub mapped: Vec<Mapped>,
    /// Every count, by its name in the JSON document.
    pub figures: Vec<(String, u64)>,
}

impl Cost {
    /// A count by its name in the JSON document, if the machine has it.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }
}

/// Cycles of the kernel at the faults of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCycles {
    /// Cycles of the faults themselves.
    pub fault: u64,
    /// Cycles of filling pages with zeros.
    pub zeroing: u64,
    /// Cycles of copying pages at stores.
    pub copying: u64,
}

impl KernelCycles {
    /// The sum of all three parts.
    pub fn total(self) -> u64 {
        self.fault.saturating_add(self.zeroing).saturating_add(self.copying)
    }
}

/// The unit to which rates refer, and how often it occurs in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// Instructions of the program.
    Instructions(u64),
    /// Runs of accesses to one 4K page, if the trace does not count instructions.
    Runs(u64),
    /// The trace has neither instructions nor runs.
    #[default]
    Nothing,
}

impl Per {
    /// Instructions if they are counted, otherwise runs.
    pub fn of(instructions: Option<u64>, runs: u64) -> Per {
        match instructions {
            Some(count) if count > 0 => Per::Instructions(count),
            _ if runs > 0 => Per::Runs(runs),
            _ => Per::Nothing,
        }
    }

    /// Name of the unit.
    pub fn unit(self) -> &'static str {
        match self {
            Per::Instructions(_) => "instructions",
            Per::Runs(_) | Per::Nothing => "runs",
        }
    }

    /// Rate of a count per 1000 of the unit.
    pub fn rate(self, count: u64) -> f64 {
        match self {
            Per::Instructions(of) | Per::Runs(of) => count as f64 * 1000.0 / of.max(1) as f64,
            Per::Nothing => 0.0,
        }
    }
}

/// Memory mapped by one kind of leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapped {
    /// Bytes of a leaf.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group of leaves; equal to `leaf_bytes` without a group.
    pub group_bytes: u64,
    /// Bytes that leaves of this kind map.
    pub bytes: u64,
}

/// Misses of LRU TLBs over geometries and page sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// The unit to which rates refer.
    pub per: Per,
    /// Misses by page size, sets and ways, ascending.
    pub geometries: Vec<TlbGeometry>,
    /// Page sizes, ascending, each with the bytes of all touched pages.
    pub footprints: Vec<(u64, u64)>,
}

/// One TLB geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TlbGeometry {
    /// Page size in bytes.
    pub page_bytes: u64,
    pub sets: u32,
    pub ways: u32,
    pub misses: u64,
}

impl Sweep {
    /// The page sizes, ascending.
    pub fn page_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.geometries.iter().map(|geometry| geometry.page_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Misses of every geometry of a page size.
    pub fn of_size(&self, page_bytes: u64) -> impl Iterator<Item = &TlbGeometry> {
        self.geometries.iter().filter(move |geometry| geometry.page_bytes == page_bytes)
    }

    /// Entries and misses for a page size, for a curve: TLBs of one set with up to eight ways, then TLBs of several
    /// sets with eight ways.
    pub fn curve(&self, page_bytes: u64) -> Vec<(u64, u64)> {
        let on_curve = |geometry: &&TlbGeometry| {
            geometry.ways == CURVE_WAYS
                || geometry.sets == 1 && geometry.ways < CURVE_WAYS && geometry.ways.is_power_of_two()
        };
        let point = |geometry: &TlbGeometry| (u64::from(geometry.sets) * u64::from(geometry.ways), geometry.misses);
        let mut points: Vec<(u64, u64)> = self.of_size(page_bytes).filter(on_curve).map(point).collect();
        points.sort_unstable();
        points
    }

    /// The TLB with the fewest entries that has at most `max_rate` misses per 1000.
    pub fn smallest(&self, page_bytes: u64, max_rate: f64) -> SmallestTlb {
        let entries_of = |of: &TlbGeometry| u64::from(of.sets) * u64::from(of.ways);
        let good = self.of_size(page_bytes).filter(|of| self.per.rate(of.misses) <= max_rate).map(entries_of).min();
        let touched = self.footprints.iter().find(|(size, _)| *size == page_bytes);
        let first_touches = touched.map_or(0, |(_, bytes)| bytes / page_bytes);
        match good {
            Some(entries) if self.of_size(page_bytes).map(entries_of).min() == Some(entries) => {
                SmallestTlb::AtMost(entries)
            }
            Some(entries) => SmallestTlb::Entries(entries),
            None if self.per.rate(first_touches) > max_rate => SmallestTlb::FirstTouches,
            None => SmallestTlb::MoreThan(self.of_size(page_bytes).map(entries_of).max().unwrap_or_default()),
        }
    }

    /// The smallest and the greatest nonzero rate per 1000 over all geometries; `None` if there are no misses.
    pub fn rates(&self) -> Option<(f64, f64)> {
        let missing = self.geometries.iter().map(|geometry| geometry.misses).filter(|misses| *misses > 0);
        let (least, most) = missing.fold((u64::MAX, 0), |(least, most), misses| (least.min(misses), most.max(misses)));
        (most > 0).then(|| (self.per.rate(least), self.per.rate(most)))
    }

    /// Where a count of misses is between the fewest and the most of the trace, from 0 to 1 on a logarithmic scale.
    pub fn heat(&self, misses: u64) -> f64 {
        let Some((least, most)) = self.rates() else { return 0.0 };
        // If all nonzero counts are equal, there is no range.
        if most <= least {
            return if misses > 0 { 1.0 } else { 0.0 };
        }
        let rate = self.per.rate(misses).max(least);
        ((rate / least).ln() / (most / least).ln()).clamp(0.0, 1.0)
    }
}

/// The smallest TLB with a given rate of misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallestTlb {
    /// This many entries: one of the swept geometries, but not the smallest.
    Entries(u64),
    /// At most this many entries: already the smallest swept geometry is sufficient.
    AtMost(u64),
    /// More entries than this: the largest swept geometry is not sufficient.
    MoreThan(u64),
    /// No TLB is sufficient: the first touches of all pages alone are more misses.
    FirstTouches,
}

/// Ways of the TLBs in [`Sweep::curve`] that have eight entries or more.
pub const CURVE_WAYS: u32 = 8;

/// A pointer chase over buffers of growing size: measured on a processor, and modelled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knees {
    /// The heading.
    pub title: String,
    /// The command line, in words.
    pub invocation: Vec<String>,
    /// The version of pagelab.
    pub version: String,
    /// Names and values: processor, machine, seed.
    pub facts: Vec<(String, String)>,
    /// Remarks that are needed to read the figures.
    pub notes: Vec<String>,
    /// Measured nanoseconds per load by buffer size; empty if loads could not be measured.
    pub measured_ns: Vec<Line>,
    /// Modelled cycles lost per load.
    pub modelled_cycles: Vec<Line>,
    /// The simulated machines.
    pub machines: Vec<Machine>,
}

/// A line of a figure: its name, and values by buffer size, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name of the line: a policy.
    pub name: String,
    /// Buffer size in bytes, and value.
    pub points: Vec<(u64, f64)>,
}

/// A simulated machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    pub processor: String,
    /// Every number and its basis.
    pub figures: Vec<MachineFigure>,
}

/// A number of a machine, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFigure {
    /// Key in the machine file.
    pub key: String,
    /// The number as text.
    pub value: String,
    /// The source of the number, or why the number is assumed.
    pub provenance: Provenance,
}

/// Where a number of a machine comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    Source(String),
    /// The number is assumed, for this reason.
    Assumed(String),
}

/// A rate per 1000; never 0 if the count is not zero.
pub fn rate_in_words(rate: f64) -> String {
    match rate {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 0.0005 => "<0.001".to_owned(),
        rate if rate < 10.0 => format!("{rate:.3}"),
        rate if rate < 1000.0 => format!("{rate:.1}"),
        rate => figure::long(rate.round(), study::metric::Unit::Count),
    }
}

/// `held 97 %`, or the holding alone. `cannot start` if the program cannot start with the policy's base pages. Where no size is
/// asked for, `84 % large`: the share of the memory mapped at the end that larger leaves than base pages map.
pub fn verdict_in_words(cost: &Cost) -> String {
    let verdict = &cost.verdict;
    match verdict.coverage_ratio() {
        _ if verdict.causes.iter().any(|share| share.cause.prevents_start()) => "cannot start".to_owned(),
        _ if verdict.holding == Holding::NotAsked => {
            let bytes = |mapped: &[Mapped]| mapped.iter().map(|mapped| mapped.bytes).sum::<u64>();
            let base_bytes = cost.mapped.iter().map(|mapped| mapped.leaf_bytes).min();
            let large: Vec<Mapped> =
                cost.mapped.iter().filter(|one| Some(one.leaf_bytes) > base_bytes).cloned().collect();
            let ratio = bytes(&large) as f64 / bytes(&cost.mapped).max(1) as f64;
            format!("{} large", figure::share(ratio))
        }
        Some(ratio) => format!("{} {}", verdict.holding, figure::share(ratio)),
        None => verdict.holding.to_string(),
    }
}

/// What the figures of a policy with which the program cannot start are those of.
pub const RELINKED: &str = "the figures are those of the program linked for larger pages";

/// A size of the census: `2M`, or `64K of 4K` for a contiguous group.
pub fn mapped_in_words(mapped: &Mapped) -> String {
    let size = policy::size::format_bytes;
    match (mapped.leaf_bytes, mapped.group_bytes) {
        (leaf, group) if leaf == group => size(leaf),
        (leaf, group) => format!("{} of {}", size(group), size(leaf)),
    }
}

#[cfg(test)]
mod tests;
