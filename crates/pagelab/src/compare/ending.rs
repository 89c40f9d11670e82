//! How a comparison ended, as an exit code.

use platform::Blame;
use study::comparison::{Admission, Comparison, Ended};
use study::control::Role;
use study::stats::boots::Part;
use study::stats::{Analysis, Outcome};
use study::trial::Arm;
use tracer::signals;

use crate::failure::{Failure, report};

/// Maps the end of a comparison to an exit code.
///
/// # Errors
/// The comparison has no result, or the command or a policy failed.
pub fn exit(comparison: &Comparison, blame: Blame) -> Result<(), Failure> {
    match &comparison.ended {
        Ended::Failed { message } => Err(match blame {
            Blame::System => Failure::Input(message.clone()),
            Blame::Unrunnable { exit_code } => Failure::Unrunnable { message: message.clone(), code: exit_code },
            Blame::Command => Failure::Command(message.clone()),
        }),
        Ended::TooSlow { message } => Err(Failure::NoResult(message.clone())),
        Ended::Time if comparison.analysis.is_none() && Part::of(comparison).is_none() => Err(Failure::NoResult(
            "there is no result: the time was up before the first block that counts was complete; give more with --max-time"
                .into(),
        )),
        Ended::Interrupted => Err(Failure::Interrupted(signals::arrived().unwrap_or(signals::CAUGHT[0]))),
        Ended::NothingAdmitted => Err(nothing_admitted(comparison)),
        _ if comparison.analysis.as_ref().is_some_and(has_wrong_answer) => {
            let what = if comparison.design.variants().is_empty() { "a policy changed the answer of the command" } else { "an arm gave a wrong answer" };
            Err(Failure::Command(format!("{what}; see the table")))
        }
        _ if comparison.trials.iter().any(|record| record.answer.too_slow && record.rejected.is_empty()) => {
            Err(Failure::Command("under a policy the command took longer than --trial-time; see the table".to_string()))
        }
        _ => Ok(()),
    }
}

/// The error if no policy could be applied: it lists each reason.
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
