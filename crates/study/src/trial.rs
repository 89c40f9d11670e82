//! One run of the workload under one policy ([`Trial`]), and its record ([`TrialRecord`]).

use serde::{Deserialize, Serialize};

use crate::metric::Observation;
use crate::role::Role;
use crate::variant::Variant;
use policy::census::Census;
use policy::machine::{SettingChange, State};
use policy::verdict::Verdict;
use policy::{Exit, Policy};

/// One arm of a comparison: a policy, or a variant under a policy, with a label. Two arms may be the same (A/A), and
/// some arms are controls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Unique in its comparison: the policy's name, or `VARIANT under POLICY`; `NAME (again)` for the A/A arm; `bare` and
    /// `sham of NAME` for control arms.
    pub label: String,
    /// The policy that determines the program's memory.
    pub policy: Policy,
    /// The purpose of the arm.
    pub role: Role,
    /// The variant of the program that is run; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
}

impl Arm {
    /// An arm for a policy that is compared.
    pub fn of_policy(label: impl Into<String>, policy: Policy) -> Arm {
        Arm { label: label.into(), policy, role: Role::Policy, variant: None }
    }

    /// `the trial of thp`, `the control run "sham of thp"`: a run of this arm in words.
    pub fn run_in_words(&self) -> String {
        match self.role {
            Role::Policy => format!("the trial of {}", self.label),
            Role::Bare | Role::Sham { .. } | Role::Frames { .. } | Role::Share { .. } => {
                format!("the control run {:?}", self.label)
            }
        }
    }

    /// Whether both run the same variant, or neither has one.
    pub fn is_same_variant(&self, other: &Arm) -> bool {
        self.variant.as_ref().map(|one| &one.name) == other.variant.as_ref().map(|one| &one.name)
    }
}

/// A position in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Index of the arm in its comparison.
    pub arm: usize,
    /// Block number; block 0 is discarded.
    pub block: u32,
    /// The position within its block.
    pub position: u32,
    /// Number of earlier attempts at this trial that were rejected.
    pub attempt: u32,
}

/// The answer of the workload, which must be the same under every policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// How the command ended.
    pub exit: Exit,
    /// SHA-256 of its standard output, in hexadecimal; absent unless requested.
    pub stdout_sha256: Option<String>,
    /// Whether the command was killed because it exceeded the time limit ([`crate::comparison::Design::trial_time_s`]). If so,
    /// `exit` says how pagelab ended it, not how it ended by itself.
    pub too_slow: bool,
    /// How its output compares with the stated answer.
    #[serde(default, skip_serializing_if = "Stated::is_nothing")]
    pub stated: Stated,
}

/// How an answer compares with the stated one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stated")]
pub enum Stated {
    /// No answer was stated.
    #[default]
    Nothing,
    /// The answer is the stated one.
    Met,
    /// The answer differs from the stated one.
    Missed {
        /// The stated answer.
        expected: String,
        /// The beginning of the actual answer.
        found: String,
    },
}

/// The record of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Its position in the schedule.
    pub trial: Trial,
    /// Start of the trial, in seconds since the comparison began.
    pub started_s: f64,
    /// Observed values. A metric without a value here could not be observed.
    pub observations: Vec<Observation>,
    /// What mapped the memory when each process of the tree ended, and the memory that was unmapped earlier.
    pub census: Census,
    /// Whether the policy held.
    pub verdict: Verdict,
    /// The answer of the command.
    pub answer: Answer,
    /// The state of the machine before the trial.
    pub state_before: State,
    /// The state of the machine after the trial.
    pub state_after: State,
    /// Setting changes that invalidate the trial; empty if it counts.
    pub rejected: Vec<SettingChange>,
}

impl Answer {
    /// The answer of a command that ended in time, without a stated answer.
    pub fn of(exit: Exit, stdout_sha256: Option<String>) -> Answer {
        Answer { exit, stdout_sha256, too_slow: false, stated: Stated::Nothing }
    }

    /// Whether the command reports success.
    pub fn succeeded(&self) -> bool {
        !self.too_slow && self.exit == Exit::Code(0)
    }

    /// Whether this answer is equivalent to another one: the command ended in the same way, and its output is the same or is the
    /// answer that was stated for it.
    pub fn agrees_with(&self, other: &Answer) -> bool {
        let is_same_output = self.stated == Stated::Met || self.stdout_sha256 == other.stdout_sha256;
        (self.exit, self.too_slow) == (other.exit, other.too_slow) && is_same_output
    }
}

impl Stated {
    /// Whether no answer was stated.
    pub fn is_nothing(&self) -> bool {
        *self == Stated::Nothing
    }
}

impl TrialRecord {
    /// The value of a metric, where it was observed.
    pub fn value(&self, metric: &str) -> Option<f64> {
        self.observations.iter().find(|observation| observation.metric == metric).map(|observation| observation.value)
    }
}
