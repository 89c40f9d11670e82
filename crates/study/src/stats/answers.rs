//! Answers: what the workload says must be the same under every policy.

use crate::comparison::Design;
use crate::trial::{Answer, TrialRecord};

/// The answer that every trial must give: that of the baseline's first trial, the discarded block
/// included.
pub(crate) fn expected<'a>(design: &Design, trials: &'a [TrialRecord]) -> Option<&'a Answer> {
    accepted(trials).find(|record| record.trial.arm == design.baseline).map(|record| &record.answer)
}

/// For each arm, how its first deviating answer differs from the expected one; `None` for an arm that
/// never deviated. A deviation of the baseline is one from its own first answer.
pub(crate) fn deviations(design: &Design, trials: &[TrialRecord]) -> Vec<Option<String>> {
    let mut deviations = vec![None; design.arms.len()];
    let Some(expected) = expected(design, trials) else { return deviations };
    for record in accepted(trials) {
        if let Some(deviation) = deviations.get_mut(record.trial.arm)
            && deviation.is_none()
            && record.answer != *expected
        {
            *deviation = Some(difference(expected, record));
        }
    }
    deviations
}

/// The trials that were not rejected.
pub(crate) fn accepted(trials: &[TrialRecord]) -> impl Iterator<Item = &TrialRecord> {
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
        "other standard output than the baseline's in block {block}: {} instead of {}",
        short(found),
        short(expected)
    )
}
