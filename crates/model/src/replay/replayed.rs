//! [`Replayed`]: what a replay found in the traces.

use std::collections::BTreeMap;

use trace::Notes;

/// A program that a process executed and that has no trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unrecorded {
    /// Its path, as passed to execve.
    pub program: String,
    /// Why the recorder did not record it, if the trace has the reason.
    pub why: Option<String>,
}

/// What the replay found in the traces, as far as it affects the results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Descriptions of parts of files that could not be read; except for the first trace, each with the name of the file.
    pub damage: Vec<String>,
    /// Whether the memory was inferred from touched pages, because no event describes any.
    pub inferred: bool,
    /// Number of events and timestamps that were processed although earlier ones are missing.
    pub out_of_order: u64,
    /// Number of processes that have several threads or children but no timestamps.
    pub untimed: u64,
    /// Whether the first trace is cut off.
    pub cut_off: bool,
    /// Whether calls were ignored ([`replay_accesses`](super::replay_accesses)).
    pub accesses_only: bool,
    /// Number of traces of forked processes that were found.
    pub children: u64,
    /// Number of executed programs whose traces were found.
    pub executed: u64,
    /// Executed programs without a trace, and how often each was executed.
    pub unrecorded: BTreeMap<Unrecorded, u64>,
    /// Names of the traces, other than the first, that are cut off.
    pub cut_off_children: Vec<String>,
    /// Instructions that all threads executed, recorded or not; `None` if a trace lacks the end of a thread.
    pub executed_instructions: Option<u64>,
    /// The notes that the recorder added to the first trace after the recording.
    pub notes: Option<Notes>,
}

impl Replayed {
    /// Whether the traces have everything that was recorded.
    pub fn is_complete(&self) -> bool {
        !self.cut_off && self.cut_off_children.is_empty() && self.damage.is_empty()
    }
}
