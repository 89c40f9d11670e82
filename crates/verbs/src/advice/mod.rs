//! Advice after a comparison: the least intrusive setting that was seen to give a program the pages of the winning policy.
//!
//! A setting is tried as a user would use it: the program runs with the setting and without a policy. Its memory is inspected
//! before the program frees a large part of it, and when the program exits. A setting holds if it has nine tenths of the
//! policy's effect, measured in the same way.

pub mod attempt;
mod candidates;
mod goal;
pub mod persistent;
pub mod process;

use std::time::Duration;

use host::Host;
use lease::Lease;
use platform::{Session, Work};
use policy::size::format_bytes;
use policy::{Granularity, Policy};
use study::advice::{Advice, Attempt, LargeBytes, Outcome, Tried};
use study::comparison::Comparison;
use tracer::signals::{self, Forward};

use crate::failure::Failure;
use crate::progress_line::ProgressLine;
use crate::waiting::report_lease_holder;
use candidates::Candidate;
use goal::Goal;

/// If the user did not ask for advice, settings are tried only if a trial takes at most this long, in seconds.
const MAX_TRIAL_S: f64 = 30.0;

/// How long to wait for other pagelabs before settings are tried, or the lease that makes waiting unnecessary.
pub struct Waiting {
    /// How long to wait for another pagelab.
    pub patience: Duration,
    /// The lease that the comparison kept, with which there is no wait.
    pub lease: Option<Lease>,
}

/// Runs a comparison's program with settings, to find a setting that works like the winning policy. It is no error if the
/// program behaves differently when it is run again; the advice then says so. With `is_requested`, a trial may take any time. If
/// the user has `chosen` a policy, it replaces the one that won.
///
/// # Errors
/// A setting cannot be restored, the program cannot be started, or a signal stopped it.
pub fn advice(
    comparison: &Comparison,
    work: &mut Work,
    waiting: Waiting,
    is_requested: bool,
    chosen: Option<&Policy>,
) -> Result<Advice, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    let session = Session::new(host).with_patience(waiting.patience, report_lease_holder).with_lease(waiting.lease);
    let goal = match Goal::of(comparison, session.host().page_sizes(), chosen) {
        Ok(goal) => goal,
        Err(reason) => return Ok(Advice::Untried { reason }),
    };
    if let Some(trial_s) = goal.trial_s.filter(|trial_s| !is_requested && *trial_s > MAX_TRIAL_S) {
        return Ok(Advice::TooLong { trial_s: trial_s.ceil() as u64 });
    }
    match try_and_restore(&goal, work, session) {
        Ok(tried) => Ok(Advice::Tried(tried)),
        Err(Failure::NoResult(reason) | Failure::Command(reason)) => Ok(Advice::Untried { reason }),
        Err(failure) => Err(failure),
    }
}

/// Tries settings, and then restores the system's own values.
fn try_and_restore(goal: &Goal, work: &mut Work, mut session: Session) -> Result<Tried, Failure> {
    signals::catch(Forward::Kill).map_err(Failure::input)?;
    let tried = try_settings(goal, work, &mut session);
    let restored = session.finish().map_err(Failure::input);
    signals::restore_defaults();
    let tried = tried?;
    restored.map(|()| tried)
}

fn try_settings(goal: &Goal, work: &mut Work, session: &mut Session) -> Result<Tried, Failure> {
    let status = ProgressLine::new();
    status.set("advice: a run under the policy");
    session.apply(&goal.policy).map_err(Failure::input)?;
    let by_policy = attempt::observe(work, &goal.policy, session)?.large_bytes(&goal.is_large);
    status.set("advice: a run without a policy");
    session.restore_under_lease().map_err(Failure::input)?;
    let by_default = attempt::observe(work, &Policy::DEFAULT, session)?;
    let default_bytes = by_default.large_bytes(&goal.is_large);
    let large = LargeBytes { by_policy, by_default: default_bytes };
    check_effect(goal, large)?;
    let mut tried = Tried { policy: goal.policy.clone(), large, attempts: Vec::new(), source_change: None };
    if tried.holds(&Outcome::Ran { large_bytes: default_bytes, no_block_bytes: 0 }) {
        let [default, by_policy] = [default_bytes, by_policy].map(format_bytes);
        return Err(Failure::NoResult(format!(
            "change nothing: the program has {default} in large pages without a policy, {by_policy} under {}",
            goal.policy
        )));
    }
    work.trial_time = Some(work.trial_time.unwrap_or_else(|| default_limit(goal.trial_s)));
    let candidates = candidates::candidates(&goal.policy, &by_default.inspection, session.host())?;
    tried.source_change = candidates.source_change;
    let count = candidates.settings.len();
    for (number, Candidate { remedy, .. }) in (1..).zip(candidates.settings) {
        let changes = remedy.changes;
        status.set(&format!("advice: setting {number} of at most {count}"));
        let outcome = attempt::attempt(work, &changes, goal, &by_default, session)?;
        tried.attempts.push(Attempt { changes, outcome });
        if tried.holding().is_some() {
            break;
        }
    }
    Ok(tried)
}

/// The time limit of a run with a setting, if the user gave none. It is needed because a setting may make the program
/// hang.
fn default_limit(trial_s: Option<f64>) -> Duration {
    Duration::from_secs_f64((10.0 * trial_s.unwrap_or(0.0)).clamp(60.0, 86_400.0))
}

/// Fails if the policy had no effect on the page sizes, because then a setting has no effect to reproduce.
fn check_effect(goal: &Goal, large: LargeBytes) -> Result<(), Failure> {
    let policy = &goal.policy;
    let reason = match policy.granularity {
        Granularity::Base if large.by_default <= large.by_policy => {
            format!("{policy}: no larger page was seen without a policy when the command was run again")
        }
        Granularity::Base => return Ok(()),
        _ if large.by_policy == 0 => {
            format!("no page of {policy} was seen when the command was run again")
        }
        _ => return Ok(()),
    };
    Err(Failure::NoResult(reason))
}

/// Fails if a signal has asked pagelab to stop.
fn fail_if_stopped() -> Result<(), Failure> {
    signals::arrived().map_or(Ok(()), |signal| Err(Failure::Stopped(signal, "the command was stopped too")))
}
