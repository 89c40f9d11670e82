//! A comparison: its design before it runs, and the resulting document.

use serde::{Deserialize, Serialize};

use crate::advice::Advice;
pub use crate::contention::Contention;
pub use crate::fragmented::Fragmented;
use crate::metric::Metric;
pub use crate::own_session::OwnSession;
use crate::result::Analysis;
use crate::trial::{Arm, TrialRecord};
use policy::Admission;
use policy::machine::Machine;

/// Everything that is decided before the first trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// The arms. Every other arm is compared with the arm at `baseline`.
    pub arms: Vec<Arm>,
    /// Index of the baseline in `arms`.
    pub baseline: usize,
    /// The metrics that have a direction; observed ones first.
    pub metrics: Vec<Metric>,
    /// Name of the metric that decides the outcome and stops the run.
    pub primary: String,
    /// Minimum number of counted blocks; block 0 is discarded and not counted.
    pub min_blocks: u32,
    /// Maximum number of counted blocks.
    pub max_blocks: u32,
    /// No block begins later than this many seconds after the start of the first trial; absent: no limit.
    pub max_time_s: Option<f64>,
    /// Time limit of a trial in seconds. A trial that exceeds it is killed, and its arm is dropped; absent: no limit.
    pub trial_time_s: Option<f64>,
    /// Half width of the interval at which an arm is measured precisely enough, as a ratio (0.01 = 1 %).
    pub precision_ratio: f64,
    /// Changes smaller than this ratio do not matter (0.01 = 1 %).
    pub band_ratio: f64,
    /// Confidence of the intervals (0.95).
    pub confidence: f64,
    /// Seed of the order of trials and of the resampling.
    pub seed: u64,
    /// Whether all memory is inspected before it is given back, however long that takes. Otherwise only large ranges are
    /// inspected, and only while inspections take a small share of a trial's time. The census and the verdict lack memory that is
    /// not inspected.
    pub prove_all: bool,
    /// What khugepaged does during the trials.
    pub khugepaged: Khugepaged,
    /// The fragmentation of free memory from before the first trial until after the last; absent: unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmented: Option<Fragmented>,
    /// The effect of giving every run its own session; absent: runs are in pagelab's session, or in a session for another user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_session: Option<OwnSession>,
    /// Contention for the processors before the first block; absent: not sampled, because the user named the primary metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention: Option<Contention>,
}

/// The state of khugepaged, the kernel thread that collapses small pages into large ones, during the trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Khugepaged {
    /// Unchanged: khugepaged wakes up in some trials and not in others.
    #[default]
    AsIs,
    /// khugepaged sleeps in all trials.
    Off,
}

/// What the user asked to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// The measured command and its arguments; with a server, the server's.
    pub command: Vec<String>,
    /// The client that drives the server, if there is one.
    pub client: Option<Vec<String>>,
    /// The command that runs before each trial; `None` if there is none.
    pub prepare: Option<Vec<String>>,
    /// The whole command line of pagelab.
    pub pagelab: Vec<String>,
    /// The version of pagelab.
    pub version: String,
}

/// The document of one comparison: everything that a table, a report or an export needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Row id in the store; 0 before it is stored.
    pub id: i64,
    /// Start, in seconds since 1970.
    pub started_unix_s: i64,
    /// The commands that were run.
    pub invocation: Invocation,
    /// Arms, metrics and limits of the comparison.
    pub design: Design,
    /// The machine on which the trials ran.
    pub machine: Machine,
    /// One admission per arm of the design.
    pub admissions: Vec<Admission>,
    /// All trials in execution order, including rejected and discarded ones.
    pub trials: Vec<TrialRecord>,
    /// The statistics of the trials; absent if there were too few.
    pub analysis: Option<Analysis>,
    /// The setting that gives the program the pages of the winning policy; `None` if no advice was requested.
    pub advice: Option<Advice>,
    /// Why the comparison ended.
    pub ended: Ended,
}

/// Why a comparison ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Ended {
    /// The comparison is still running, or was killed.
    NotEnded,
    /// Every arm reached the requested precision.
    Precise,
    /// The maximum number of blocks was reached.
    Blocks,
    /// The time limit expired.
    Time,
    /// The user interrupted it.
    Interrupted,
    /// A trial exceeded the time limit of a trial, and without its arm there is nothing to compare.
    TooSlow {
        /// The trial and the limit, as a sentence.
        message: String,
    },
    /// A trial failed; the message says how.
    Failed {
        /// What failed, as a sentence.
        message: String,
    },
    /// There is nothing to compare: the baseline, or every other arm, was not admitted.
    NothingAdmitted,
}

impl Ended {
    /// Whether the comparison ended regularly, so that its analysis is a result.
    pub fn has_result(&self) -> bool {
        matches!(self, Ended::Precise | Ended::Blocks | Ended::Time)
    }
}
