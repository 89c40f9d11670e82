//! A question of a study: a change, its error, and whether it is decided.

use super::{EARLY_CONFIDENCE, WorkloadProgress};
use study::comparison::Design;
use study::stats::{Effect, LogError};

/// A question that a study answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The policy or variant, or the description of a published figure.
    pub name: String,
    /// What decides the question.
    pub aim: Aim,
    /// Logarithm of the ratio that was found: the mean over the terms.
    pub log_ratio: f64,
    /// The workloads of whose changes `log_ratio` is the mean.
    pub terms: Vec<Term>,
    /// Confidence of the interval at the end of the study.
    pub confidence: f64,
}

/// What decides a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// The interval excludes a ratio of 1, or is inside the practical band.
    Change,
    /// The interval excludes either a ratio of 1 or the published ratio, whose logarithm is `log_ratio`.
    Published { log_ratio: f64 },
    /// The interval decides, but the correction for several policies or workloads withdraws the claim. More blocks make it more
    /// significant, but it is unknown how many decide the question.
    Correction,
    /// The tracer's stops could have caused the change. More blocks make the cost of the stops more precise, but it is unknown how
    /// many decide the question.
    TracerCost,
}

/// The share of a workload in a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The workload's index among the workloads that are measured in these rounds; absent for any other workload.
    pub workload: Option<usize>,
    /// The measuring error of the workload's logarithm; absent with too few blocks.
    pub error: Option<LogError>,
    /// Whether the workload's arm still runs. An arm whose outcome is certain stops early.
    pub is_running: bool,
}

/// The band of changes that do not matter, as a logarithm.
fn band() -> f64 {
    Design::BAND_RATIO.ln_1p()
}

impl Question {
    /// The measuring error; `None` if a term has none.
    pub fn error(&self) -> Option<LogError> {
        let errors: Option<Vec<LogError>> = self.terms.iter().map(|term| term.error).collect();
        LogError::of_mean(&errors?)
    }

    /// The change with its interval at the end of the study.
    pub fn effect(&self) -> Effect {
        let half = self.error().map(|error| error.half_width(self.confidence));
        let bound = |sign: f64| half.map(|half| (self.log_ratio + sign * half).exp());
        let (low, high) = (bound(-1.0), bound(1.0));
        Effect { blocks: self.terms.len() as u32, ratio: self.log_ratio.exp(), low, high, p_adjusted: None }
    }

    /// Whether the question would be decided if the study ended now.
    pub fn is_decided(&self) -> bool {
        self.is_decided_at(self.confidence)
    }

    /// Whether the question is decided at [`EARLY_CONFIDENCE`], so that the study need not continue for it.
    pub fn is_certain(&self) -> bool {
        self.is_decided_at(EARLY_CONFIDENCE)
    }

    fn is_decided_at(&self, confidence: f64) -> bool {
        let Some(half) = self.error().map(|error| error.half_width(confidence)) else { return false };
        let size = self.log_ratio.abs();
        match self.aim {
            Aim::Change => size + half <= band() || (size > half && (self.is_mean() || size > band())),
            Aim::Published { log_ratio } => size > half || (self.log_ratio - log_ratio).abs() > half,
            Aim::Correction | Aim::TracerCost => false,
        }
    }

    /// Half width of the interval, as a logarithm, that would decide the question if the estimate is right; `None` if no such
    /// width is known.
    pub(super) fn needed_half_width(&self) -> Option<f64> {
        let size = self.log_ratio.abs();
        let needed = match self.aim {
            Aim::Change if self.is_mean() => size.max(band() - size),
            Aim::Change if size > band() => size,
            // An estimate close to the edge of the band will move, so the required width is never below a quarter of the band.
            Aim::Change => (band() - size).max(band() / 4.0),
            Aim::Published { log_ratio } => size.max((self.log_ratio - log_ratio).abs()),
            Aim::Correction | Aim::TracerCost => 0.0,
        };
        (needed > 0.0).then_some(needed)
    }

    /// Whether the question is about a mean over workloads. The change of a single workload has to be outside the band, as in
    /// its comparison.
    fn is_mean(&self) -> bool {
        self.terms.len() > 1
    }
}

impl Term {
    /// The workload to which more time can be given for this term.
    pub(super) fn open(&self, spent: &[WorkloadProgress]) -> Option<usize> {
        self.workload.filter(|at| self.is_running && spent[*at].is_open)
    }
}
