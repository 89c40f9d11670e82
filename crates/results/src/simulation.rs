//! What simulations of traces found, as plain data: whoever simulates fills it in, and this crate shows it.
//! Every figure of a [`Document`] is modelled.

mod shading;

use policy::verdict::Verdict;

use crate::figure;
pub use crate::spread::{Spread, Spreading};

/// Everything that one page shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The heading.
    pub title: String,
    /// The words of the command line.
    pub invocation: Vec<String>,
    /// The version of pagelab.
    pub version: String,
    /// What the simulations had in common: name and value.
    pub settings: Vec<(String, String)>,
    /// The traces, in the order asked for.
    pub traces: Vec<Trace>,
    /// The machines that were simulated.
    pub machines: Vec<Machine>,
}

/// A trace and what was found about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The file.
    pub file: String,
    /// What was recorded, if the trace says so.
    pub command: Vec<String>,
    /// What else it says: name and value.
    pub facts: Vec<(String, String)>,
    /// What must be known to read its figures.
    pub notes: Vec<String>,
    /// The result of each machine, a sentence each.
    pub answers: Vec<String>,
    /// Each machine under each policy, machine by machine.
    pub cells: Vec<Cell>,
    /// How far figures spread over layouts of addresses, if that was asked for: each machine under each policy that ran.
    pub spreads: Vec<Spread>,
    /// Misses of LRU TLBs of every geometry, if they were asked for.
    pub sweep: Option<Sweep>,
}

/// One machine under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The machine.
    pub machine: String,
    /// The policy.
    pub policy: String,
    /// What it cost, or why there is no answer.
    pub outcome: Result<Cost, Missing>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The machine cannot have the policy, for this reason.
    Refused(String),
    /// The simulation ended before the trace did, for this reason: what it had counted is no answer.
    Stopped(String),
}

impl Missing {
    /// What stands where the answer would.
    pub fn words(&self) -> &'static str {
        match self {
            Missing::Refused(_) => "cannot be had",
            Missing::Stopped(_) => "stopped early",
        }
    }

    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Missing::Refused(why) | Missing::Stopped(why) => why,
        }
    }
}

/// What a trace costs on a machine under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The page size that the policy asks for.
    pub page_bytes: u64,
    /// Whether the policy held.
    pub verdict: Verdict,
    /// What rates are per.
    pub per: Per,
    /// Misses of the first level.
    pub first_level_misses: u64,
    /// Those that the second level did not hold either.
    pub second_level_misses: u64,
    /// Walks.
    pub walks: u64,
    /// Entries that walks read.
    pub walk_references: u64,
    /// Cycles lost if all walkers are always busy.
    pub least_lost_cycles: u64,
    /// Cycles lost if one walk is done at a time.
    pub most_lost_cycles: u64,
    /// Cycles of the kernel at faults, if the machine says what they take.
    pub kernel: Option<KernelCycles>,
    /// Page faults.
    pub faults: u64,
    /// The most memory that was mapped at once.
    pub resident_peak_bytes: u64,
    /// The most 4K pages that were touched and mapped at once.
    pub touched_peak_bytes: u64,
    /// The most memory that was allocated and mapped by nothing.
    pub held_unmapped_peak_bytes: u64,
    /// Page tables at most, with those that are kept for THP leaves.
    pub table_peak_bytes: u64,
    /// Memory at the end by what maps it, smallest leaves first.
    pub mapped: Vec<Mapped>,
    /// Every count, as JSON has it: name and number.
    pub figures: Vec<(String, u64)>,
}

/// Cycles of the kernel at the faults of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCycles {
    /// Of the faults themselves.
    pub fault: u64,
    /// Of filling pages with zeros.
    pub zeroing: u64,
    /// Of copying pages at stores.
    pub copying: u64,
}

impl KernelCycles {
    /// All of them.
    pub fn total(self) -> u64 {
        self.fault.saturating_add(self.zeroing).saturating_add(self.copying)
    }
}

/// What rates are per: 1000 of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// Instructions of the program.
    Instructions(u64),
    /// Runs of accesses to one 4K page, where the trace does not count instructions.
    Runs(u64),
    /// There was neither.
    #[default]
    Nothing,
}

impl Per {
    /// Instructions where they are counted.
    pub fn of(instructions: Option<u64>, runs: u64) -> Per {
        match instructions {
            Some(count) if count > 0 => Per::Instructions(count),
            _ if runs > 0 => Per::Runs(runs),
            _ => Per::Nothing,
        }
    }

    /// Their name.
    pub fn unit(self) -> &'static str {
        match self {
            Per::Instructions(_) => "instructions",
            Per::Runs(_) | Per::Nothing => "runs",
        }
    }

    /// How many times per 1000.
    pub fn rate(self, count: u64) -> f64 {
        match self {
            Per::Instructions(of) | Per::Runs(of) => count as f64 * 1000.0 / of.max(1) as f64,
            Per::Nothing => 0.0,
        }
    }
}

/// Memory that is mapped in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapped {
    /// Bytes of a leaf.
    pub leaf_bytes: u64,
    /// Bytes of its contiguous group; those of the leaf where it stands alone.
    pub group_bytes: u64,
    /// Bytes that are mapped so.
    pub bytes: u64,
}

/// Misses of LRU TLBs over geometries and page sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// What rates are per.
    pub per: Per,
    /// Misses, by page size, sets and ways, rising.
    pub geometries: Vec<TlbGeometry>,
    /// Bytes of all pages that are touched, by page size, rising: each and its bytes.
    pub footprints: Vec<(u64, u64)>,
}

/// One geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TlbGeometry {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Sets.
    pub sets: u32,
    /// Ways.
    pub ways: u32,
    /// Misses.
    pub misses: u64,
}

impl Sweep {
    /// The page sizes, rising.
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

    /// Entries and misses for a page size: one set of up to eight ways, then more sets of eight.
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

    /// The least and the greatest rate per 1000 that any geometry has; `None` where none misses.
    pub fn rates(&self) -> Option<(f64, f64)> {
        let missing = self.geometries.iter().map(|geometry| geometry.misses).filter(|misses| *misses > 0);
        let (least, most) = missing.fold((u64::MAX, 0), |(least, most), misses| (least.min(misses), most.max(misses)));
        (most > 0).then(|| (self.per.rate(least), self.per.rate(most)))
    }

    /// Where misses stand between the fewest and the most of the trace, by their logarithms: 0 to 1.
    pub fn heat(&self, misses: u64) -> f64 {
        let Some((least, most)) = self.rates() else { return 0.0 };
        // Where all that miss miss the same, nothing is fewest.
        if most <= least {
            return if misses > 0 { 1.0 } else { 0.0 };
        }
        let rate = self.per.rate(misses).max(least);
        ((rate / least).ln() / (most / least).ln()).clamp(0.0, 1.0)
    }
}

/// Ways of the TLBs of [`Sweep::curve`] from eight entries on.
pub const CURVE_WAYS: u32 = 8;

/// A pointer chase over buffers of growing size: measured on a processor, beside the model of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knees {
    /// The heading.
    pub title: String,
    /// The words of the command line.
    pub invocation: Vec<String>,
    /// The version of pagelab.
    pub version: String,
    /// Names and values: processor, machine, seed.
    pub facts: Vec<(String, String)>,
    /// What must be known to read it.
    pub notes: Vec<String>,
    /// Nanoseconds a load, measured: a name and, by bytes of the buffer, the values; without a line where nothing could be
    /// measured.
    pub measured_ns: Vec<Line>,
    /// Cycles a load loses, modelled.
    pub modelled_cycles: Vec<Line>,
    /// The machine.
    pub machines: Vec<Machine>,
}

/// A line of a figure: its name, and values by bytes, rising.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The policy.
    pub name: String,
    /// Bytes and value.
    pub points: Vec<(u64, f64)>,
}

/// A machine as it was simulated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// The processor.
    pub processor: String,
    /// Every number and what vouches for it.
    pub figures: Vec<MachineFigure>,
}

/// A number of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFigure {
    /// Where it stands in the machine file.
    pub key: String,
    /// The number.
    pub value: String,
    /// A source, or why it is assumed.
    pub ground: Ground,
}

/// What vouches for a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// A source.
    Source(String),
    /// It is assumed, for this reason.
    Assumed(String),
}

/// A rate per 1000; never 0 where something is there.
pub fn rate_in_words(rate: f64) -> String {
    match rate {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 0.0005 => "<0.001".to_owned(),
        rate if rate < 10.0 => format!("{rate:.3}"),
        rate if rate < 1000.0 => format!("{rate:.1}"),
        rate => figure::long(rate.round(), study::metric::Unit::Count),
    }
}

/// `held 97 %`, or the word alone.
pub fn verdict_in_words(verdict: &Verdict) -> String {
    match verdict.coverage_ratio() {
        Some(ratio) => format!("{} {}", verdict.holding, figure::share(ratio)),
        None => verdict.holding.to_string(),
    }
}

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
