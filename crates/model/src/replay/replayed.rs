//! A summary of what was found in a trace.

use std::collections::BTreeMap;

/// A program that a process executed and of which there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unrecorded {
    /// Its path, as in the call.
    pub program: String,
    /// The recorder's reason for not following the process into it, if the trace has one.
    pub why: Option<String>,
}

/// Facts about the replayed traces that affect the results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Descriptions of parts of files that could not be used; for forked processes with the names of their files.
    pub damage: Vec<String>,
    /// Whether no event describes memory, so that it was inferred from touched pages.
    pub inferred: bool,
    /// Number of events and timestamps that were processed out of order, because earlier ones are missing.
    pub out_of_order: u64,
    /// Number of processes with several threads or children but without timestamps.
    pub untimed: u64,
    /// Whether the first trace was cut off.
    pub cut_off: bool,
    /// Whether calls were ignored: [`replay_accesses`](super::replay_accesses).
    pub accesses_only: bool,
    /// Number of traces of forked processes that were found.
    pub children: u64,
    /// Number of executed programs whose traces were found.
    pub executed: u64,
    /// Executed programs without a trace, and how often each was executed.
    pub unrecorded: BTreeMap<Unrecorded, u64>,
    /// Names of the traces, other than the first, that were cut off.
    pub cut_off_children: Vec<String>,
}

impl Replayed {
    /// Whether everything that was recorded is available.
    pub fn is_complete(&self) -> bool {
        !self.cut_off && self.cut_off_children.is_empty() && self.damage.is_empty()
    }
}
