//! What was met on the way through a trace.

use std::collections::BTreeMap;

/// A program that a process executed and of which there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unrecorded {
    /// Its name, as it was called.
    pub program: String,
    /// Why the recorder did not follow it there, if it says so.
    pub why: Option<String>,
}

/// What was met on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Parts of files that could not be used, in words; those of forked processes with the names of their files.
    pub damage: Vec<String>,
    /// No event says which memory there is: it was inferred from what is touched.
    pub inferred: bool,
    /// Events and timestamps that had to be taken out of their order over threads, because what was before is missing.
    pub out_of_order: u64,
    /// Processes with several threads or children of which no timestamp says who was first.
    pub untimed: u64,
    /// The trace was cut off.
    pub cut_off: bool,
    /// Calls were left out: [`replay_accesses`](super::replay_accesses).
    pub accesses_only: bool,
    /// Traces of forked processes that were found.
    pub children: u64,
    /// Programs that processes executed and of which traces were found.
    pub executed: u64,
    /// Those of which there is none, and how often each was executed.
    pub unrecorded: BTreeMap<Unrecorded, u64>,
    /// Names of traces other than the first that were cut off.
    pub cut_off_children: Vec<String>,
}

impl Replayed {
    /// Whether all that was recorded was there.
    pub fn is_complete(&self) -> bool {
        !self.cut_off && self.cut_off_children.is_empty() && self.damage.is_empty()
    }
}
