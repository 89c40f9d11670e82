//! A comparison that runs in several parts: the trials of the earlier parts, and when a part pauses.

use crate::trial::TrialRecord;

/// The earlier parts of a comparison that was interrupted.
#[derive(Clone, Debug, Default)]
pub struct EarlierParts {
    /// The finished trials, in execution order.
    pub trials: Vec<TrialRecord>,
    /// What happened since the last of these trials.
    pub gap: Gap,
}

/// What happened between two parts of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// Nothing that affects caches and pools.
    #[default]
    Nothing,
    /// Other programs were measured, and used caches and pools.
    Others,
    /// The machine was rebooted.
    Reboot,
}

/// When a comparison pauses, so that others can run. It then ends as [`crate::comparison::Ended::Interrupted`], and
/// [`super::resume`] continues it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// Once the minimum number of blocks is complete, no block begins later than this many seconds after the first trial.
    pub after_s: f64,
    /// No block begins later than this many seconds after the first trial, however few blocks are complete. It replaces
    /// [`crate::comparison::Design::max_time_s`].
    pub latest_s: f64,
}
