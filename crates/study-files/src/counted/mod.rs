//! Savings of variants of some work ([`Counted`]), as ranges: the work is counted exactly, and weighted with costs that are
//! known only as ranges.
//!
//! The program counts what each variant does ([`Case`]: a count per named event). The study's file defines the cost of an event
//! and its source ([`Costs`]). Times and savings are then ranges: they cover every choice of costs within their ranges. A
//! variant and the baseline always use the same choice of costs, so the range of their ratio is narrower than the ratio of
//! their ranges.

mod cost;
mod published;
mod table;

pub use cost::{Basis, Cost, Costs, Pace, Range};
pub use published::{Figure, KernelChange, PatchedKernels, Place, Reproduction};
pub use table::{Row, Saving, Table};

use std::collections::BTreeMap;

/// The part of a study that defines which work is counted, in which variants, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The counted work, by its name in the program.
    pub what: String,
    /// Bytes of memory for which the work is counted.
    pub bytes: u64,
    /// The translation granules. Savings are also averaged over them.
    pub granules: Vec<String>,
    /// The variants; all are compared with the first.
    pub variants: Vec<String>,
    /// The cost of each event.
    pub costs: Costs,
    /// Remark that is needed to read the published figures.
    pub note: Option<String>,
    /// Savings that others have published.
    pub published: Vec<Figure>,
    /// The variants in patched kernels, in instructions.
    pub kernels: Option<PatchedKernels>,
}

/// Number of events, by name.
pub type Counts = BTreeMap<String, u64>;

/// The work of a variant in one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The phase of the work: `enable`, `clear`.
    pub phase: String,
    /// What maps the memory: `pages`, `thp`, `1g`.
    pub backing: String,
    /// The translation granule.
    pub granule: String,
    pub variant: String,
    /// Page table entries visited in total.
    pub visits: u64,
    /// Counts of all events that cost time.
    pub counts: Counts,
}
