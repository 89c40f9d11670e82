//! Work that is counted exactly and weighed with costs that are known within ranges: what variants of it save, as a range.
//!
//! The program counts what each variant does ([`Case`]: so many events of each name); the study's file says what an event
//! costs, and where that is known from ([`Costs`]). A time and a saving are then ranges: they hold for every choice of costs
//! within theirs. A variant and the baseline always have the same costs, so their ratio is narrower than those of their times.

mod beside;
mod cost;
mod table;

pub use beside::{Figure, Place, Set};
pub use cost::{Basis, Cost, Costs, Pace, Range};
pub use table::{Row, Saving, Table};

use std::collections::BTreeMap;

/// What is counted, of which variants, and what it costs: a part of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// What the program counts, by its name.
    pub what: String,
    /// Bytes of memory that it is counted for.
    pub bytes: u64,
    /// The translation granules, over which savings are averaged too.
    pub granules: Vec<String>,
    /// The variants; the others are set beside the first.
    pub variants: Vec<String>,
    /// What an event costs.
    pub costs: Costs,
    /// What must be known to read the published figures.
    pub note: Option<String>,
    /// Savings that others have published.
    pub published: Vec<Figure>,
}

/// How often each event happens, by its name.
pub type Counts = BTreeMap<String, u64>;

/// What a variant does in one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// When it is done: `enable`, `clear`.
    pub phase: String,
    /// What the memory is mapped with: `pages`, `thp`, `1g`.
    pub backing: String,
    /// The translation granule.
    pub granule: String,
    /// The variant.
    pub variant: String,
    /// Entries that are visited in all.
    pub visits: u64,
    /// Everything that costs time.
    pub counts: Counts,
}
