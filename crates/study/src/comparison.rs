//! A comparison: its design before it runs, and the document that it becomes.

use serde::{Deserialize, Serialize};

pub use crate::fragmented::Fragmented;
use crate::machine::Machine;
use crate::metric::Metric;
use crate::stats::result::Analysis;
use crate::trial::{Arm, TrialRecord};

/// Everything that is decided before the first trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// The arms; every other arm is compared with the one at `baseline`.
    pub arms: Vec<Arm>,
    /// Index of the baseline in `arms`.
    pub baseline: usize,
    /// The metrics with a direction, the observed ones first.
    pub metrics: Vec<Metric>,
    /// Name of the metric that decides the outcome and stops the run.
    pub primary: String,
    /// Blocks that count, at least; block 0 is discarded and not among them.
    pub min_blocks: u32,
    /// Blocks that count, at most.
    pub max_blocks: u32,
    /// No block begins after this long, counted from the start of the first trial; absent: no limit.
    pub max_time_s: Option<f64>,
    /// A trial that takes longer is ended, and with it its arm; absent: no limit.
    pub trial_time_s: Option<f64>,
    /// Half width of the interval at which an arm is measured well enough, as a ratio (0.01 = 1 %).
    pub precision_ratio: f64,
    /// Changes smaller than this do not matter to anybody, as a ratio (0.01 = 1 %).
    pub band_ratio: f64,
    /// Confidence of the intervals (0.95).
    pub confidence: f64,
    /// Seed of the order of trials and of the resampling.
    pub seed: u64,
    /// Whether all memory is looked at before it goes, whatever time that takes; otherwise large ranges, as long as looking takes a
    /// small share of a trial's time. What is not looked at is missing from the census and the verdict.
    pub prove_all: bool,
    /// What the kernel's khugepaged does meanwhile.
    pub khugepaged: Khugepaged,
    /// How free memory is fragmented before the first trial, until the last; absent: it is as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented: Option<Fragmented>,
}

/// What khugepaged does during the trials: the kernel's thread that makes large pages of small ones, when it wakes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Khugepaged {
    /// What it does by itself: in some trials it wakes up, in others not.
    #[default]
    AsIs,
    /// It sleeps in all of them.
    Off,
}

/// Whether an arm can be measured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "admission")]
pub enum Admission {
    /// It can; the sentence says which mechanisms apply the policy.
    Admitted {
        /// For example `madvise(MADV_HUGEPAGE) injected after mmap and brk`.
        mechanism: String,
    },
    /// It cannot.
    Unsupported(Unsupported),
}

/// Why a policy cannot be given here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}; {remedy}")]
pub struct Unsupported {
    /// What is missing.
    pub reason: String,
    /// How to get it, as exactly as possible: a command, a kernel version, a privilege.
    pub remedy: String,
}

/// How to have a policy permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adoption {
    /// One line that says what this way is and whom it affects.
    pub scope: String,
    /// The commands or settings, ready to be copied.
    pub commands: Vec<String>,
}

/// What was compared with what, as the user said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// The measured command and its arguments; the server's, when there is one.
    pub command: Vec<String>,
    /// The client that drives a server, when there is one.
    pub client: Option<Vec<String>>,
    /// The command that is run before each trial, when there is one.
    pub prepare: Option<Vec<String>>,
    /// The whole command line of pagelab.
    pub pagelab: Vec<String>,
    /// The version of pagelab.
    pub version: String,
}

/// The document of one comparison: all that a table, a report or an export needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Its number in the store; 0 before it is stored.
    pub id: i64,
    /// Seconds since 1970 at its start.
    pub started_unix_s: i64,
    /// What was run.
    pub invocation: Invocation,
    /// The design.
    pub design: Design,
    /// The machine.
    pub machine: Machine,
    /// One for each arm of the design.
    pub admissions: Vec<Admission>,
    /// Every trial in the order of its run, rejected and discarded ones included.
    pub trials: Vec<TrialRecord>,
    /// What follows from the trials; absent when too few were run.
    pub analysis: Option<Analysis>,
    /// How to have each arm's policy permanently; one for each arm.
    pub adoptions: Vec<Vec<Adoption>>,
    /// Why it ended.
    pub ended: Ended,
}

/// Why a comparison ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Ended {
    /// It is still running, or was killed.
    NotEnded,
    /// Every arm is measured as precisely as asked.
    Precise,
    /// The greatest number of blocks was reached.
    Blocks,
    /// The time was up.
    Time,
    /// The user interrupted it.
    Interrupted,
    /// A trial took longer than a trial may, and without its arm there is nothing to compare.
    TooSlow {
        /// Which.
        message: String,
    },
    /// A trial failed; the message says how.
    Failed {
        /// What happened.
        message: String,
    },
    /// There is nothing to compare: the baseline, or every other arm, could not be admitted.
    NothingAdmitted,
}

impl Ended {
    /// Whether it came to its end: what it says is a result.
    pub fn has_result(&self) -> bool {
        matches!(self, Ended::Precise | Ended::Blocks | Ended::Time)
    }
}
