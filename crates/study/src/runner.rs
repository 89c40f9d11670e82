//! The loop: admits the arms, runs block after block, and says what happens as events.

use crate::comparison::{Admission, Ended};
use crate::stats::Analysis;
use crate::trial::{Arm, Trial, TrialRecord};

/// Code that can run a trial. The running host is one; tests have a fake one.
pub trait Platform {
    /// What goes wrong when a trial cannot be run at all.
    type Error: std::fmt::Display;

    /// Whether the arm's policy can be given here.
    fn admit(&mut self, arm: &Arm) -> Admission;

    /// Runs one trial. A record with `rejected` filled does not count and is repeated.
    fn run(&mut self, arm: &Arm, trial: Trial) -> Result<TrialRecord, Self::Error>;

    /// Seconds since the comparison began.
    fn elapsed_s(&self) -> f64;

    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;
}

/// Something that happened; progress bars, the store and the live table listen.
#[derive(Debug)]
pub enum Event<'a> {
    /// All arms were asked for; one admission for each.
    Admitted(&'a [Admission]),
    /// A trial begins.
    Started(&'a Trial),
    /// A trial ended; it counts unless `rejected` is filled or its block is 0.
    Finished(&'a TrialRecord),
    /// A block that counts is complete.
    Block(&'a Analysis),
    /// The comparison ended.
    Ended(&'a Ended),
}
