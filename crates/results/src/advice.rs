//! The advice of a comparison as text.

use policy::remedy::{Change, describe};
use policy::size::format_bytes;
use policy::{Granularity, Policy};
use study::advice::{Advice, Attempt, Outcome, Tried};
use study::comparison::Comparison;

use crate::rows;
use crate::text::{command_line, printable};

/// The advice in a sentence; empty if the comparison has none.
pub fn short(comparison: &Comparison) -> String {
    match &comparison.advice {
        None => String::new(),
        Some(Advice::Untried { reason }) => format!("advice: {}", printable(reason)),
        Some(Advice::TooLong { trial_s }) => format!(
            "advice: a trial takes {trial_s} s, so no setting was tried; {} tries those that could give the program these pages, one \
             run each",
            command(comparison)
        ),
        Some(Advice::Tried(tried)) => answer(tried, comparison),
    }
}

/// The command that advises on a stored comparison: `pagelab advise --show 3 --store FILE`.
pub fn command(comparison: &Comparison) -> String {
    let words = &comparison.invocation.pagelab;
    let own = words.iter().take_while(|word| *word != "--");
    let store = own.clone().find_map(|word| word.strip_prefix("--store="));
    let store = store.or_else(|| {
        own.clone().zip(own.skip(1)).find(|(option, _)| *option == "--store").map(|(_, file)| file.as_str())
    });
    let store = store.map(|file| format!(" --store {}", command_line(&[file.to_owned()]))).unwrap_or_default();
    format!("pagelab advise --show {}{store}", comparison.id)
}

/// The command that measures the setting of the advice; `None` if no setting was seen to hold.
pub fn measuring_command(comparison: &Comparison) -> Option<String> {
    comparison.advice.as_ref().and_then(Advice::holding).map(|_| format!("{} --measure", command(comparison)))
}

/// Everything that was tried, one line each.
pub fn attempts(comparison: &Comparison) -> Vec<String> {
    let Some(Advice::Tried(tried)) = &comparison.advice else { return Vec::new() };
    tried.attempts.iter().map(|attempt| format!("  {}", row(tried, attempt))).collect()
}

fn answer(tried: &Tried, comparison: &Comparison) -> String {
    let (policy, list) = (&tried.policy, command(comparison));
    if let Some((attempt, bytes)) = tried.holding() {
        let pool = attempt.changes.iter().find_map(Change::pool_bytes);
        let pool = pool.map(|bytes| format!("; the pool takes {} from all other memory", format_bytes(bytes)));
        let takes_away =
            attempt.changes.iter().any(|change| matches!(change, Change::Setting { value, .. } if value == "never"));
        let for_all = match (&pool, attempt.is_for_all()) {
            (Some(pool), _) => pool.as_str(),
            (None, true) if takes_away => "; all programs get them, and none larger",
            (None, true) => "; all programs get it",
            (None, false) => "",
        };
        let effect = effect(tried, bytes);
        let which = which(tried, comparison);
        return printable(&format!("advice: {which}{} ({effect}, in one run{for_all})", attempt.instruction()));
    }
    if let Some(bytes) = tried.undecided_for_blocks() {
        let text = format!("advice: not known: {}", for_blocks(bytes, &list));
        return printable(&text);
    }
    let why = match tried.attempts.len() {
        0 => "no setting is known that gives it to this program's memory".into(),
        n => format!("{} had no such effect ({list})", settings(n)),
    };
    let source = tried.source_change.as_ref();
    let source = source.map(|change| format!(". Not tried: {change}")).unwrap_or_default();
    let own = command_line(&comparison.invocation.command);
    let text = format!("advice: {policy} is not possible without changing the program: {why}{source}.");
    format!("{} pagelab exec -p {policy} -- {own} runs it that way", printable(&text))
}

/// `for thp, tied with it and simpler to set: `: the policy whose pages the setting gives, if it is not the one that the result names first.
fn which(tried: &Tried, comparison: &Comparison) -> String {
    let label = tried.policy.to_string();
    let best = rows::best(comparison);
    let is_own = |arm: &usize| comparison.design.arms.get(*arm).is_some_and(|arm| arm.label == label);
    match best.iter().position(is_own) {
        Some(0) => String::new(),
        Some(_) => format!("for {label}, tied with it and simpler to set: "),
        None => format!("for {label}: "),
    }
}

/// What to do if the settings were tried while the kernel had too few free blocks of this size.
fn for_blocks(bytes: u64, list: &str) -> String {
    format!(
        "when settings were tried, the kernel found no free block for up to {} of larger pages; {}; then {list}",
        format_bytes(bytes),
        describe(&Change::free_blocks())
    )
}

/// How much memory gets large pages with the setting, compared with the policy.
fn effect(tried: &Tried, bytes: u64) -> String {
    let Policy { granularity, .. } = &tried.policy;
    let [by_policy, by_default, bytes] = [tried.large.by_policy, tried.large.by_default, bytes].map(format_bytes);
    let policy = &tried.policy;
    match granularity {
        Granularity::Base => {
            format!("by default {by_default} is in larger pages, with this {bytes}, under {policy} {by_policy}")
        }
        Granularity::Mthp(size) => format!("{bytes} in {size} pages, {by_policy} by {policy}"),
        _ => format!("{bytes} in large pages, {by_policy} by {policy}"),
    }
}

fn settings(n: usize) -> String {
    if n == 1 { "1 setting".into() } else { format!("{n} settings") }
}

/// A setting that was tried, and its outcome.
pub fn row(tried: &Tried, attempt: &Attempt) -> String {
    let outcome = match &attempt.outcome {
        Outcome::Ran { large_bytes, .. } if tried.holds(&attempt.outcome) => {
            format!("holds: {}", format_bytes(*large_bytes))
        }
        Outcome::Ran { large_bytes, no_block_bytes } => {
            let blocks = match no_block_bytes {
                0 => String::new(),
                bytes => {
                    format!("; the kernel found no free block for {} meanwhile, whole system", format_bytes(*bytes))
                }
            };
            format!("no effect: {} of {}{blocks}", format_bytes(*large_bytes), format_bytes(tried.large.by_policy))
        }
        Outcome::NotReached { variable } => {
            format!("no effect: what starts the program clears its environment, so {variable} did not reach it")
        }
        Outcome::OtherAnswer => "the program gave another answer".into(),
        Outcome::Failed { how } => format!("the program failed: {how}"),
        Outcome::Refused { reason } => format!("not set: {reason}"),
    };
    printable(&format!("{outcome}: {}", attempt.instruction()))
}

#[cfg(test)]
mod tests {
    use study::advice::LargeBytes;

    use super::*;
    use crate::sample;

    fn advised(attempts: Vec<Attempt>, source_change: Option<&str>) -> Comparison {
        let large = LargeBytes { by_policy: 256 << 20, by_default: 0 };
        let policy = "thp".parse().unwrap();
        let source_change = source_change.map(str::to_owned);
        let advice = Advice::Tried(Tried { policy, large, attempts, source_change });
        Comparison { id: 7, advice: Some(advice), ..sample::comparison() }
    }

    #[test]
    fn the_command_names_the_store_of_the_comparison() {
        let mut comparison = Comparison { id: 7, ..sample::comparison() };
        let mut of = |words: &[&str]| {
            comparison.invocation.pagelab = words.iter().map(|word| (*word).to_owned()).collect();
            command(&comparison)
        };
        assert_eq!(of(&["pagelab", "compare", "--", "x", "--store", "y"]), "pagelab advise --show 7");
        assert_eq!(of(&["pagelab", "compare", "--store", "a b", "--", "x"]), "pagelab advise --show 7 --store 'a b'");
        assert_eq!(of(&["pagelab", "compare", "--store=s", "--", "x"]), "pagelab advise --show 7 --store s");
    }

    fn tried(path: &str, value: &str, large_bytes: u64) -> Attempt {
        Attempt {
            changes: vec![Change::setting(path, value)],
            outcome: Outcome::Ran { large_bytes, no_block_bytes: 0 },
        }
    }

    #[test]
    fn a_setting_that_holds_is_named_with_what_was_seen() {
        let comparison = advised(vec![tried("/a", "madvise", 0), tried("/b", "always", 255 << 20)], None);
        let text = short(&comparison);
        assert!(text.starts_with("advice: ") && text.contains("/b"), "{text}");
        assert!(text.ends_with("(255M in large pages, 256M by thp, in one run; all programs get it)"), "{text}");
        let rows = attempts(&comparison);
        assert_eq!(rows.len(), 2);
        assert!(rows[0].starts_with("  no effect: 0 of 256M: ") && rows[1].starts_with("  holds: 255M: "), "{rows:?}");
    }

    #[test]
    fn where_nothing_holds_the_program_must_change() {
        let text = short(&advised(Vec::new(), Some("advise it")));
        assert!(text.contains("is not possible without changing the program: no setting is known"), "{text}");
        assert!(text.contains("Not tried: advise it. pagelab exec -p thp -- "), "{text}");
        let refused = Attempt { outcome: Outcome::Refused { reason: "\x1b[2J".into() }, ..tried("/a", "x", 0) };
        let rows = attempts(&advised(vec![refused], None));
        assert!(rows[0].starts_with("  not set: ") && !rows[0].contains('\x1b'), "{rows:?}");
    }

    #[test]
    fn base_pages_count_the_rest() {
        let mut comparison = advised(vec![tried("/a", "never", 0)], None);
        let Some(Advice::Tried(tried)) = &mut comparison.advice else { unreachable!() };
        tried.policy = "base".parse().unwrap();
        tried.large = LargeBytes { by_policy: 0, by_default: 64 << 20 };
        let text = short(&comparison);
        let effect = "(by default 64M is in larger pages, with this 0, under base 0, in one run; all programs get them";
        assert!(text.contains(effect), "{text}");
    }
}
