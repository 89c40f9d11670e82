//! Metrics and observations: what is measured, in which unit, and where the figure comes from.

use serde::{Deserialize, Serialize};

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A number of events.
    Count,
    /// A share between 0 and 1.
    Ratio,
    /// A unit that only the measured program knows (`--metric`).
    Custom,
}

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Less is better (time, faults, bytes).
    Lower,
    /// More is better (throughput).
    Higher,
}

/// Where a figure comes from; tables never mix these silently.
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

/// Something that every trial of a comparison observes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Snake case, unit last: `wall_s`.
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which way it improves.
    pub direction: Direction,
}

/// One value of one metric in one trial. A metric that a platform lacks is absent, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The metric's name.
    pub metric: String,
    /// The value in the metric's unit.
    pub value: f64,
    /// Where it comes from.
    pub provenance: Provenance,
}

impl Metric {
    /// A metric by its parts.
    pub fn new(name: impl Into<String>, unit: Unit, direction: Direction) -> Metric {
        Metric { name: name.into(), unit, direction }
    }

    /// The metrics that every trial on a Linux host can have, in the order in which they are shown.
    /// Those from `dtlb_walks` on need a performance-monitoring unit.
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

/// Names of the metrics that pagelab itself observes.
pub mod names {
    /// Wall time of the command's process tree, from exec to the end of its teardown, less the census.
    pub const WALL_S: &str = "wall_s";
    /// User and system time of the tree.
    pub const CPU_S: &str = "cpu_s";
    /// Time in user mode.
    pub const USER_S: &str = "user_s";
    /// Time in the kernel, page faults and teardown included.
    pub const SYSTEM_S: &str = "system_s";
    /// Page faults served without I/O.
    pub const MINOR_FAULTS: &str = "minor_faults";
    /// Page faults that read from a device.
    pub const MAJOR_FAULTS: &str = "major_faults";
    /// The largest resident set of a process of the tree, hugetlb pages included.
    pub const PEAK_RESIDENT_BYTES: &str = "peak_resident_bytes";
    /// Page tables of the tree's processes, each as large as it was seen when memory was looked at, summed. The kernel keeps no
    /// peak of them: there were at least so many.
    pub const PAGE_TABLE_SEEN_BYTES: &str = "page_table_seen_bytes";
    /// Time for which tasks of the tree stood still in stops of the tracer, summed.
    pub const TRACER_S: &str = "tracer_s";
    /// Stops of the tree's tasks for the tracer, of every kind. No metric of a design: what they cost is measured
    /// ([`crate::control`]).
    pub const TRACER_STOPS: &str = "tracer_stops";
    /// Time of looks at memory, for the census, that the wall time may contain: other tasks of the tree ran meanwhile, or the
    /// client of a server. No metric of a design: nothing is better for having less of it.
    pub const LOOKS_S: &str = "looks_s";
    /// How long other processes went on when the first one had ended. No metric of a design.
    pub const OUTLIVED_S: &str = "outlived_s";
    /// CPU time of processes that outlived the first one, from their beginning on, as far as it was seen. No metric of a design.
    pub const OUTLIVED_CPU_S: &str = "outlived_cpu_s";
    /// The largest shared memory (shmem: shared anonymous memory, tmpfs, memfd) that a process of the tree had resident when
    /// memory went. No policy concerns it. No metric of a design.
    pub const SHARED_BYTES: &str = "shared_bytes";
    /// Windows that khugepaged made into large pages meanwhile, of whatever process: a counter of the host. No metric of a
    /// design: it says which of two states a trial was in.
    pub const HOST_COLLAPSES: &str = "host_khugepaged_collapses";
    /// Large pages that were allocated for such windows meanwhile, by khugepaged or for madvise(MADV_COLLAPSE), of whatever
    /// process: a counter of the host.
    pub const HOST_COLLAPSE_ALLOCATIONS: &str = "host_collapse_allocations";
    /// Faults of anonymous memory that found no page of the PMD's size meanwhile and took smaller ones: a counter of the host.
    pub const HOST_FALLBACKS: &str = "host_fault_fallbacks";
    /// Times that a process waited for compaction meanwhile: a counter of the host.
    pub const HOST_COMPACTIONS: &str = "host_compaction_stalls";
    /// Those after which there was a large page: a counter of the host.
    pub const HOST_COMPACTED: &str = "host_compaction_successes";
    /// Completed page walks for data.
    pub const DTLB_WALKS: &str = "dtlb_walks";
    /// Completed page walks for instructions.
    pub const ITLB_WALKS: &str = "itlb_walks";
    /// Cycles with a page walk under way, as a share of all cycles.
    pub const WALK_CYCLES_RATIO: &str = "walk_cycles_ratio";
    /// Instructions of the tree, in user mode and in the kernel, where a guest's clock counts them ([`crate::guest`]).
    pub const INSTRUCTIONS: &str = "instructions";
    /// Median time of the program's own iterations without the first (`--repeat-inside`).
    pub const ITERATION_S: &str = "iteration_s";
    /// Time of the program's own first iteration (`--repeat-inside`).
    pub const FIRST_ITERATION_S: &str = "first_iteration_s";
}
