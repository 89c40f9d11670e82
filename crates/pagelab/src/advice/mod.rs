//! The advice below a comparison: the least intrusive setting that was seen to give a program the pages of the policy that won.
//!
//! A setting is tried as a user would use it: the program runs without a policy, and what maps its memory is read before it gives
//! much of it back, and when it ends. It counts if it brought nine tenths of the large memory that the policy brings, read in the
//! same way.

mod attempt;
mod candidates;
mod goal;
mod words;

use std::time::Duration;

use host::Host;
use platform::Session;
use policy::Policy;
use policy::remedy::Remedy;
use study::comparison::Comparison;
use tracer::signals::{self, PassOn};

use crate::failure::Failure;
use crate::waiting;
use attempt::Outcome;
pub use attempt::Program;
use goal::Goal;

/// The longest trial for which settings are tried without being asked for, in seconds.
const MAX_TRIAL_S: f64 = 30.0;

/// The share of the policy's large memory that a setting must bring.
const ENOUGH_RATIO: f64 = 0.9;

/// The settings that were tried for a policy.
pub struct Advice {
    /// The policy that won.
    policy: Policy,
    /// What the program does that conflicts with it.
    obstacle: Option<String>,
    /// Bytes that it maps by pages of its size or larger.
    wanted_bytes: u64,
    /// What was tried, in this order. The last one holds, if any does.
    attempts: Vec<Attempt>,
}

/// A setting that was tried.
struct Attempt {
    remedy: Remedy,
    outcome: Outcome,
}

/// All settings that were tried for a stored comparison, as text.
///
/// # Errors
/// The command cannot be run again, or a setting cannot be restored.
pub fn whole(comparison: &Comparison, program: &Program, patience: Duration) -> Result<String, Failure> {
    let session = session(patience)?;
    match Goal::of(comparison, session.host().page_sizes()) {
        Err(why) => Ok(words::without_goal(&why)),
        Ok(goal) => Ok(words::whole(&advice(&goal, program, session)?, &comparison.invocation.command)),
    }
}

/// The advice below a comparison that has just been made, as text; `None` where nothing is to be tried.
///
/// # Errors
/// The command cannot be run again, or a setting cannot be restored.
pub fn below(comparison: &Comparison, program: &Program, patience: Duration) -> Result<Option<String>, Failure> {
    let session = session(patience)?;
    let Ok(goal) = Goal::of(comparison, session.host().page_sizes()) else { return Ok(None) };
    if goal.trial_s.is_some_and(|trial_s| trial_s > MAX_TRIAL_S) {
        return Ok(Some(words::too_long(comparison.id)));
    }
    let advice = advice(&goal, program, session)?;
    Ok(Some(words::short(&advice, &comparison.invocation.command, comparison.id)))
}

fn session(patience: Duration) -> Result<Session, Failure> {
    let host = Host::open("/").map_err(Failure::input)?;
    Ok(Session::new(host).with_patience(patience, waiting::say_who_holds_the_lease))
}

/// Tries settings until one holds, and restores all of them.
fn advice(goal: &Goal, program: &Program, mut session: Session) -> Result<Advice, Failure> {
    signals::catch(PassOn::Kill).map_err(Failure::input)?;
    let tried = tried(goal, program, &mut session);
    let restored = session.finish().map_err(Failure::input);
    signals::release();
    let tried = tried?;
    restored.map(|()| tried)
}

fn tried(goal: &Goal, program: &Program, session: &mut Session) -> Result<Advice, Failure> {
    session.apply(&goal.policy).map_err(Failure::input)?;
    let wanted_bytes = attempt::look(program, &goal.policy, session)?.large_bytes(goal.size);
    if wanted_bytes == 0 {
        let policy = &goal.policy;
        return Err(Failure::NoResult(format!(
            "no page of {policy} was seen when the command was run again for advice"
        )));
    }
    session.rest().map_err(Failure::input)?;
    let by_default = attempt::look(program, &Policy::DEFAULT, session)?;
    let mut advice =
        Advice { policy: goal.policy.clone(), obstacle: goal.obstacle.clone(), wanted_bytes, attempts: Vec::new() };
    for remedy in candidates::candidates(goal, &by_default) {
        let outcome = attempt::attempt(program, &remedy, goal.size, session)?;
        let holds = outcome.holds(wanted_bytes);
        advice.attempts.push(Attempt { remedy, outcome });
        if holds {
            break;
        }
    }
    Ok(advice)
}

impl Advice {
    /// The setting that holds, and the bytes that it brought.
    fn holding(&self) -> Option<(&Remedy, u64)> {
        let last = self.attempts.last()?;
        let Outcome::Large { bytes } = last.outcome else { return None };
        last.outcome.holds(self.wanted_bytes).then_some((&last.remedy, bytes))
    }
}
