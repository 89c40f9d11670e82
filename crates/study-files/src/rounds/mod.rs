//! Rounds of a study: which workload runs next, when the answer is decided, and how much time would decide it.
//!
//! All workloads of a study share its time. The answer consists of questions ([`Question`]): the mean change of each policy, and
//! each published figure. While a question is undecided, the workload that shrinks the question's error most per second runs next
//! ([`next`]). Times are computed from the stored trials, so a study that was killed resumes as if it had not been.

mod allocation;
mod of_matrix;
mod outlook;
mod question;

pub use allocation::{more_s, next};
pub use of_matrix::questions;
pub use outlook::StudyProgress;
pub use question::{Aim, Question, Term};

/// Confidence at which a study ends before its time limit. Deciding after every round makes false claims more frequent. At this
/// confidence, early decisions add very few false claims, so the last decision keeps the usual confidence (the rule of
/// Haybittle and Peto).
pub const EARLY_CONFIDENCE: f64 = 0.999;

/// The share of a workload's time that one round gives it.
pub const SLICE_RATIO: f64 = 0.25;

/// The comparison of a workload, and the time that it has taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadProgress {
    /// The id of the comparison in the store.
    pub comparison: i64,
    /// Seconds from the first trial of the comparison to its last, without pauses.
    pub time_s: f64,
    /// Whether the comparison can run more blocks: it has reached neither its precision nor its maximum number of blocks.
    pub is_open: bool,
}
