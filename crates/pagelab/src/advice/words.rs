//! Advice as text.

use policy::remedy::{Change, Remedy};
use policy::size::format_bytes;
use results::printable;

use super::attempt::Outcome;
use super::{Advice, Attempt};
use crate::output::folded;

/// Below a comparison: the setting that holds, or that none does.
pub fn short(advice: &Advice, command: &[String], id: i64) -> String {
    let others = match advice.attempts.len() {
        0 | 1 => String::new(),
        n if advice.holding().is_some() => {
            format!(" ({} without this effect: pagelab advise --show {id})", settings(n - 1))
        }
        _ => format!(" (pagelab advise --show {id} names them)"),
    };
    folded(format!("{}{others}", answer(advice, command)))
}

/// All that was tried.
pub fn whole(advice: &Advice, command: &[String]) -> String {
    let rows = advice.attempts.iter().map(|one| folded(format!("  {}", row(advice, one))));
    std::iter::once(folded(answer(advice, command))).chain(rows).collect::<Vec<_>>().join("\n")
}

/// Why there is nothing to advise.
pub fn without_goal(why: &str) -> String {
    folded(format!("advice: {why}"))
}

/// A trial takes too long for settings to be tried without being asked for.
pub fn too_long(id: i64) -> String {
    format!("advice: pagelab advise --show {id} tries the settings that could give it this, one run each")
}

fn answer(advice: &Advice, command: &[String]) -> String {
    let policy = &advice.policy;
    let wanted = format_bytes(advice.wanted_bytes);
    match advice.holding() {
        Some((remedy, bytes)) => {
            let others = if is_for_all(remedy) { "; it concerns every program" } else { "" };
            let bytes = format_bytes(bytes);
            format!(
                "advice: {} ({policy} brings large pages to {wanted}, this to {bytes}, seen in one run{others})",
                remedy.instruction()
            )
        }
        None => {
            let why = match (&advice.obstacle, advice.attempts.len()) {
                (Some(obstacle), _) => obstacle.clone(),
                (None, 0) => "no setting is known that gives it to this program's memory".into(),
                (None, n) => format!("cannot be had without changing the program: {} had no such effect", settings(n)),
            };
            let words = command.iter().map(|word| shlex::try_quote(word).map_or(word.clone(), Into::into));
            let words = words.collect::<Vec<_>>().join(" ");
            printable(&format!("advice: {policy}: {why}. This runs it that way: pagelab exec -p {policy} -- {words}"))
        }
    }
}

/// Whether the remedy gives large pages to every program.
fn is_for_all(remedy: &Remedy) -> bool {
    remedy.changes.iter().any(|change| matches!(change, Change::Setting { value, .. } if value == "always"))
}

fn settings(n: usize) -> String {
    if n == 1 { "1 setting".into() } else { format!("{n} settings") }
}

fn row(advice: &Advice, one: &Attempt) -> String {
    let outcome = match &one.outcome {
        Outcome::Large { bytes } if one.outcome.holds(advice.wanted_bytes) => {
            format!("holds: {}", format_bytes(*bytes))
        }
        Outcome::Large { bytes } => {
            format!("no effect: {} of {}", format_bytes(*bytes), format_bytes(advice.wanted_bytes))
        }
        Outcome::Failed { how } => format!("the program {how}"),
        Outcome::Refused { reason } => format!("not set: {}", printable(reason)),
    };
    format!("{outcome}: {}", one.remedy.instruction())
}
