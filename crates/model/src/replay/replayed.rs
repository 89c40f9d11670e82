//! What was met on the way through a trace.

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
    /// Names of those that were cut off.
    pub cut_off_children: Vec<String>,
}

impl Replayed {
    /// Whether all that was recorded was there.
    pub fn is_complete(&self) -> bool {
        !self.cut_off && self.cut_off_children.is_empty() && self.damage.is_empty()
    }
}
