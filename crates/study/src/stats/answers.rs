//! Checks the answers of trials: every arm must give the baseline's answer, within the time limit.

use crate::comparison::Design;
use crate::result::Outcome;
use crate::trial::{Answer, Stated, TrialRecord};

/// How an arm's answer deviates from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deviation {
    /// The answer differs from the baseline's.
    Other(String),
    /// The answer differs from the answer that the user stated.
    Unexpected(String),
    /// The trial exceeded the time limit.
    TooSlow(String),
}

impl Deviation {
    /// The deviation in words.
    pub fn message(&self) -> &str {
        match self {
            Deviation::Other(message) | Deviation::Unexpected(message) | Deviation::TooSlow(message) => message,
        }
    }

    /// The resulting outcome of the arm.
    pub fn outcome(&self) -> Outcome {
        match self.clone() {
            Deviation::Other(message) | Deviation::Unexpected(message) => Outcome::WrongAnswer { message },
            Deviation::TooSlow(message) => Outcome::TooSlow { message },
        }
    }
}

/// The answer that every trial must give: the answer of the baseline's first trial, which may be in the discarded block.
pub(crate) fn expected<'a>(design: &Design, trials: &'a [TrialRecord]) -> Option<&'a Answer> {
    accepted(trials).find(|record| record.trial.arm == design.baseline).map(|record| &record.answer)
}

/// For each arm, how its first deviating answer differs from the expected one; `None` for an arm that never deviated.
/// The baseline is compared with its own first answer.
pub(crate) fn deviations(design: &Design, trials: &[TrialRecord]) -> Vec<Option<Deviation>> {
    let mut deviations = vec![None; design.arms.len()];
    let expected = expected(design, trials);
    for record in accepted(trials) {
        if let Some(deviation) = deviations.get_mut(record.trial.arm)
            && deviation.is_none()
        {
            *deviation = match (&record.answer.stated, expected) {
                _ if record.answer.too_slow => Some(Deviation::TooSlow(too_slow(design, record))),
                (Stated::Missed { expected, found }, _) if record.answer.succeeded() => {
                    let block = record.trial.block;
                    Some(Deviation::Unexpected(format!("{found:?} instead of {expected:?} in block {block}")))
                }
                (_, Some(expected)) if !record.answer.agrees_with(expected) => {
                    Some(Deviation::Other(difference(expected, record)))
                }
                _ => None,
            };
        }
    }
    deviations
}

/// Message for an arm with a trial that took too long: `took longer than 30 s (--trial-time) in block 2, and was ended`.
pub fn too_slow(design: &Design, record: &TrialRecord) -> String {
    let limit = design.trial_time_s.map_or("a trial may".to_string(), |limit_s| format!("{limit_s} s"));
    format!("took longer than {limit} (--trial-time) in block {}, and was ended", record.trial.block)
}

/// The trials that were not rejected.
pub fn accepted(trials: &[TrialRecord]) -> impl Iterator<Item = &TrialRecord> {
    trials.iter().filter(|record| record.rejected.is_empty())
}

fn difference(expected: &Answer, record: &TrialRecord) -> String {
    let block = record.trial.block;
    let found = &record.answer;
    if expected.exit != found.exit {
        return format!("{} instead of {} in block {block}", found.exit, expected.exit);
    }
    let short = |answer: &Answer| match &answer.stdout_sha256 {
        Some(hash) => format!("sha256 {}", hash.chars().take(12).collect::<String>()),
        None => "no hash".to_string(),
    };
    format!(
        "standard output differs from the baseline's in block {block}: {} instead of {}",
        short(found),
        short(expected)
    )
}
