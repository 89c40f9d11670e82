//! Metrics and observations: what is measured, in which unit, and the provenance of a figure.

use serde::{Deserialize, Serialize};

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    Bytes,
    /// A number of events.
    Count,
    /// A share between 0 and 1.
    Ratio,
    /// A unit known only to the measured program (`--metric`).
    Custom,
}

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Less is better (time, faults, bytes).
    Lower,
    /// More is better (throughput).
    Higher,
}

/// The provenance of a figure; tables never mix these silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Read from the running system.
    Measured,
    /// Computed by a model.
    Modelled,
    /// Computed from measured figures.
    Derived,
}

/// A quantity that every trial of a comparison observes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Snake case with the unit last: `wall_s`.
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// The direction in which it improves.
    pub direction: Direction,
}

/// One value of one metric in one trial. A metric that a platform cannot observe is absent, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The metric's name.
    pub metric: String,
    /// The value in the metric's unit.
    pub value: f64,
    /// The provenance of the value.
    pub provenance: Provenance,
}

impl Metric {
    /// Creates a metric.
    pub fn new(name: impl Into<String>, unit: Unit, direction: Direction) -> Metric {
        Metric { name: name.into(), unit, direction }
    }

    /// The metrics that every trial on a Linux host can have, in display order. Those from `dtlb_walks` on need a
    /// performance-monitoring unit.
    pub fn of_every_trial() -> Vec<Metric> {
        let seconds = [names::WALL_S, names::CPU_S, names::USER_S, names::SYSTEM_S];
        let counts = [names::MINOR_FAULTS, names::MAJOR_FAULTS];
        let bytes = [names::PEAK_RESIDENT_BYTES, names::PAGE_TABLE_SEEN_BYTES];
        let tracer = Metric::new(names::TRACER_S, Unit::Seconds, Direction::Lower);
        let pmu = [names::DTLB_WALKS, names::ITLB_WALKS];
        let lower = |name: &str, unit| Metric::new(name, unit, Direction::Lower);
        let mut all: Vec<Metric> = Vec::new();
        all.extend(seconds.map(|name| lower(name, Unit::Seconds)));
        all.extend(counts.map(|name| lower(name, Unit::Count)));
        all.extend(bytes.map(|name| lower(name, Unit::Bytes)));
        all.push(tracer);
        all.extend(pmu.map(|name| lower(name, Unit::Count)));
        all.push(lower(names::WALK_CYCLES_RATIO, Unit::Ratio));
        all
    }
}

impl Observation {
    /// A figure read from the running system.
    pub fn measured(metric: impl Into<String>, value: f64) -> Observation {
        Observation { metric: metric.into(), value, provenance: Provenance::Measured }
    }

    /// A figure computed from measured ones.
    pub fn derived(metric: impl Into<String>, value: f64) -> Observation {
        Observation { metric: metric.into(), value, provenance: Provenance::Derived }
    }
}

/// Short names that `compare --primary` accepts for times, with the names of the metrics.
pub const SHORT_NAMES: [(&str, &str); 4] =
    [("wall", names::WALL_S), ("cpu", names::CPU_S), ("user", names::USER_S), ("system", names::SYSTEM_S)];

/// The word of `compare --primary` that chooses between wall time and CPU time. No metric has this name.
pub const AUTO: &str = "auto";

/// Names of the metrics that pagelab itself observes.
pub mod names {
    /// Wall time of the command's process tree, from exec to the end of its teardown, less the census.
    pub const WALL_S: &str = "wall_s";
    /// User and system time of the tree, in seconds.
    pub const CPU_S: &str = "cpu_s";
    /// Time in user mode, in seconds.
    pub const USER_S: &str = "user_s";
    /// Time in the kernel, in seconds, including page faults and teardown.
    pub const SYSTEM_S: &str = "system_s";
    /// Page faults served without I/O.
    pub const MINOR_FAULTS: &str = "minor_faults";
    /// Page faults that read from a device.
    pub const MAJOR_FAULTS: &str = "major_faults";
    /// The largest resident set of a process of the tree, hugetlb pages included.
    pub const PEAK_RESIDENT_BYTES: &str = "peak_resident_bytes";
    /// Page tables of the tree's processes, each at the largest size seen when memory was inspected, summed. The kernel
    /// records no peak of them, so this is a lower bound.
    pub const PAGE_TABLE_SEEN_BYTES: &str = "page_table_seen_bytes";
    /// Seconds for which tasks of the tree were stopped by the tracer, summed.
    pub const TRACER_S: &str = "tracer_s";
    /// Stops of the tree's tasks for the tracer, of every kind. Not a metric of a design, because control arms measure the cost
    /// of the stops ([`crate::control`]).
    pub const TRACER_STOPS: &str = "tracer_stops";
    /// Seconds of inspecting memory for the census that may be part of the wall time, because other tasks of the tree, or the
    /// client of a server, ran meanwhile. Not a metric of a design, because less of it is not better.
    pub const LOOKS_S: &str = "looks_s";
    /// Seconds for which other processes continued after the first one had ended. Not a metric of a design.
    pub const OUTLIVED_S: &str = "outlived_s";
    /// CPU time in seconds, since their start, of the processes that outlived the first one, as far as it was sampled. Not a
    /// metric of a design.
    pub const OUTLIVED_CPU_S: &str = "outlived_cpu_s";
    /// The largest resident shared memory (shmem: shared anonymous memory, tmpfs, memfd) of a process of the tree when
    /// memory was given back. No policy applies to it. Not a metric of a design.
    pub const SHARED_BYTES: &str = "shared_bytes";
    /// Large pages that khugepaged created during the trial, in any process: a host-wide counter. Not a metric of a design: it
    /// shows whether khugepaged was active in a trial.
    pub const HOST_COLLAPSES: &str = "host_khugepaged_collapses";
    /// Large pages allocated for collapses during the trial, by khugepaged or for madvise(MADV_COLLAPSE), in any
    /// process: a host-wide counter.
    pub const HOST_COLLAPSE_ALLOCATIONS: &str = "host_collapse_allocations";
    /// Anonymous faults that could not get a PMD-sized page during the trial and fell back to smaller pages: a
    /// host-wide counter.
    pub const HOST_FALLBACKS: &str = "host_fault_fallbacks";
    /// Direct compaction stalls during the trial: a host-wide counter.
    pub const HOST_COMPACTIONS: &str = "host_compaction_stalls";
    /// Direct compactions that yielded a large page: a host-wide counter.
    pub const HOST_COMPACTED: &str = "host_compaction_successes";
    /// Number of PMD-sized, aligned blocks of physical memory that hold anonymous memory: the largest number in one inspection,
    /// which is made at the end of a process or before memory is given back (`--explain`, root).
    pub const FRAME_BLOCKS: &str = "frame_blocks";
    /// The minimum number of such blocks that could hold all of that memory.
    pub const MIN_FRAME_BLOCKS: &str = "min_frame_blocks";
    /// Under `+pte-mapped`: the share of anonymous memory that PMD leaves still mapped when it was inspected, over all inspections.
    pub const LATE_LEAVES_RATIO: &str = "late_leaves_ratio";
    /// Bytes that a process mapped and the policy advised: the maximum over the processes of the tree. Memory that is mapped twice
    /// counts twice.
    pub const ADVISED_BYTES: &str = "advised_bytes";
    /// Completed page walks for data accesses.
    pub const DTLB_WALKS: &str = "dtlb_walks";
    /// Completed page walks for instruction fetches.
    pub const ITLB_WALKS: &str = "itlb_walks";
    /// Cycles with a page walk in progress, as a share of all cycles.
    pub const WALK_CYCLES_RATIO: &str = "walk_cycles_ratio";
    /// Instructions of the tree, in user mode and in the kernel, if a guest's clock counts them ([`crate::guest`]).
    pub const INSTRUCTIONS: &str = "instructions";
    /// The part of `instructions` in user mode, by the kernel's division of CPU time. Most kernels divide it by samples at
    /// their tick.
    pub const USER_INSTRUCTIONS: &str = "user_instructions";
    /// The part of `instructions` in the kernel, divided in the same way.
    pub const KERNEL_INSTRUCTIONS: &str = "kernel_instructions";
    /// Memory that is mapped by leaves larger than base pages or by whole folios larger than base pages, at its inspection
    /// (guests).
    pub const LARGE_PAGE_BYTES: &str = "large_page_bytes";

    /// The name of the metric with the part of [`LARGE_PAGE_BYTES`] that was in pages of one size: `pages_2M_bytes`.
    pub fn in_pages_of(size: ::policy::size::PageSize) -> String {
        format!("pages_{size}_bytes")
    }

    /// The page size in a name that [`in_pages_of`] made.
    pub fn size_of_pages(name: &str) -> Option<&str> {
        name.strip_prefix("pages_")?.strip_suffix("_bytes")
    }
    /// Median seconds of the program's own iterations except the first (`--repeat-inside`).
    pub const ITERATION_S: &str = "iteration_s";
    /// Seconds of the program's own first iteration (`--repeat-inside`).
    pub const FIRST_ITERATION_S: &str = "first_iteration_s";
}
