//! How a comparison ended, as an exit code.

use platform::Blame;
use policy::Admission;
use study::comparison::{Comparison, Ended};
use study::control::Role;
use study::guest::kernel_of;
use study::stats::boots::MeasuredBoots;
use study::stats::{Analysis, Outcome};
use study::trial::Arm;
use tracer::signals;

use super::time_limit;
use crate::failure::{Failure, report};

/// Maps the end of a comparison to an exit code.
///
/// # Errors
/// The comparison has no result, or the command or a policy failed.
pub fn exit(comparison: &Comparison, blame: Blame) -> Result<(), Failure> {
    match &comparison.ended {
        Ended::Failed { message } => Err(failed(message.clone() + &stored(comparison), blame)),
        Ended::TooSlow { message } => Err(Failure::NoResult(message.clone() + &stored(comparison))),
        Ended::Time if comparison.analysis.is_none() && MeasuredBoots::of(comparison).is_none() => {
            let of_guest =
                if kernel_of(&comparison.machine).is_some() { ", which the guest's clock measures" } else { "" };
            let time = time_limit::enough(comparison).map(|time| format!(" {time}")).unwrap_or_default();
            Err(Failure::NoResult(format!(
                "there is no result: the time was up before the first block that counts was complete; give more time with \
                 --max-time{time}{of_guest}"
            )))
        }
        Ended::Interrupted => Err(Failure::Interrupted(signals::arrived().unwrap_or(signals::CAUGHT[0]))),
        Ended::NothingAdmitted => Err(nothing_admitted(comparison)),
        _ if comparison.analysis.as_ref().is_some_and(has_wrong_answer) => {
            let what = if comparison.design.variants().is_empty() {
                "a policy changed the answer of the command"
            } else {
                "an arm gave a wrong answer"
            };
            Err(Failure::Command(format!("{what}; see the table")))
        }
        _ if comparison.trials.iter().any(|record| record.answer.too_slow && record.rejected.is_empty()) => {
            Err(Failure::Command("under a policy the command took longer than --trial-time; see the table".to_string()))
        }
        _ => Ok(()),
    }
}

fn failed(message: String, blame: Blame) -> Failure {
    match blame {
        Blame::System => Failure::Input(message),
        Blame::Unrunnable { exit_code } => Failure::Unrunnable { message, code: exit_code },
        Blame::Command => Failure::Command(message),
    }
}

/// A sentence on where the blocks before a failure are; empty if there are none.
fn stored(comparison: &Comparison) -> String {
    let is_stored = comparison.analysis.is_some() && comparison.id > 0;
    if is_stored {
        format!("; the blocks before that are stored as comparison {}", comparison.id)
    } else {
        String::new()
    }
}

/// Whether a comparison has results to show. If not, the error message says everything.
pub fn has_results(comparison: &Comparison) -> bool {
    match comparison.ended {
        Ended::Failed { .. } | Ended::TooSlow { .. } | Ended::NothingAdmitted => false,
        Ended::Time => comparison.analysis.is_some() || MeasuredBoots::of(comparison).is_some(),
        _ => true,
    }
}

/// The error if no policy could be applied, with the reason for each policy.
fn nothing_admitted(comparison: &Comparison) -> Failure {
    let arms = comparison.admissions.iter().zip(&comparison.design.arms);
    let reason = |(admission, arm): (&Admission, &Arm)| match admission {
        Admission::Unsupported(why) => Some(format!("{}: {why}", arm.label)),
        Admission::Admitted { .. } => None,
    };
    let reasons: Vec<String> = arms.filter(|(_, arm)| arm.role == Role::Policy).filter_map(reason).collect();
    if let [reason] = &reasons[..] {
        return Failure::NothingAdmitted(format!("there is nothing to compare: {reason}"));
    }
    reasons.iter().for_each(|reason| report(format_args!("pagelab: {}", results::printable(reason))));
    Failure::NothingAdmitted("so there is nothing to compare".into())
}

fn has_wrong_answer(analysis: &Analysis) -> bool {
    analysis.arms.iter().any(|arm| matches!(arm.outcome, Outcome::WrongAnswer { .. }))
}
