//! The sentence of a comparison, and the instructions for applying the best policy.

use policy::{Admission, Unsupported};
use study::stats::Effect;

use super::*;
use crate::sample;

/// The sample with this outcome and wall-time effect for `thp`, and without results for the other arms.
fn concluded(outcome: Outcome, ratio: f64, low: f64, high: f64) -> Comparison {
    let mut comparison = sample::comparison();
    let analysis = comparison.analysis.as_mut().unwrap();
    let effect = Effect { blocks: 14, ratio, low: Some(low), high: Some(high), p_adjusted: Some(0.01) };
    for arm in 1..analysis.arms.len() {
        analysis.arms[arm].outcome = if arm == 3 { outcome.clone() } else { Outcome::Unsupported };
        analysis.arms[arm].tied.clear();
    }
    analysis.arms[3].effects.insert(names::WALL_S.to_string(), effect);
    comparison
}

#[test]
fn the_sample_has_a_winner() {
    let sentence = conclude(&sample::comparison());
    let start = "thp is the best of 4 policies: 1.13 times as fast as default (wall time 11.";
    let end = "%, 15 blocks), for 1.2 times the peak memory; held on 97 % of the memory.";
    assert!(sentence.starts_with(start) && sentence.ends_with(end), "{sentence}");
    assert!(sentence.contains(" % less, 95 % interval 11."), "{sentence}");
}

#[test]
fn with_a_server_a_time_has_its_process() {
    let mut comparison = sample::comparison();
    comparison.invocation.client = Some(vec!["client".into()]);
    assert!(conclude(&comparison).contains("as fast as default (client's wall time 11."), "{}", conclude(&comparison));
    let screen = crate::screen::render(&comparison, crate::screen::Place { width: 120, is_folded: false, full: "x" });
    assert!(crate::emphasis::without_emphasis(&screen).contains("client's wall time"));
}

#[test]
fn an_undecided_sentence_names_the_metric_that_is_steadier() {
    let mut comparison = concluded(Outcome::Undecided { blocks_needed: Some(40) }, 0.994, 0.979, 1.009);
    let load = study::comparison::Contention {
        cpus: 2,
        window_s: 0.2,
        share_ratio: 0.5,
        busy_cpus: 2.0,
        runnable_tasks: 4.0,
        steal_ratio: 0.0,
        decides: false,
    };
    comparison.design.contention = Some(load);
    let sentence = conclude(&comparison);
    assert!(
        sentence.contains("--blocks 40; the processors were shared, so CPU time is steadier (--primary cpu)"),
        "{sentence}"
    );
    let mut of_server = comparison.clone();
    of_server.invocation.client = Some(vec!["client".to_owned()]);
    let sentence = conclude(&of_server);
    assert!(sentence.contains("other programs shared the processors") && !sentence.contains("--primary"), "{sentence}");
    comparison.design.contention = Some(study::comparison::Contention { share_ratio: 0.99, ..load });
    assert!(!conclude(&comparison).contains("--primary cpu"));
}

#[test]
fn a_beaten_policy_has_its_share_of_the_gain() {
    let mut comparison = sample::comparison();
    let arms = &mut comparison.analysis.as_mut().unwrap().arms;
    arms[2].outcome = Outcome::Better { best: false };
    arms[2].gain_share = Some(GainShare { of: 3, ratio: 0.617, low: 0.48, high: 0.791 });
    let sentence = conclude(&comparison);
    assert!(sentence.contains("; of that gain, asking for thp+no-guards brings 62 % (48 to 79 %)"), "{sentence}");
}

#[test]
fn every_outcome_has_its_words() {
    let undecided = |blocks_needed| Outcome::Undecided { blocks_needed };
    for (outcome, (ratio, low, high), words) in [
        (
            undecided(Some(40)),
            (0.994, 0.979, 1.009),
            "undecided: the noise hides whether thp differs from default: wall time 0.6 % less than default (95 % interval -2.1 to +0.9 %, 14 blocks); about 40 blocks would settle it: --blocks 40.",
        ),
        (
            undecided(None),
            (0.994, 0.979, 1.009),
            "too few blocks to say how many would settle it: run more blocks (--blocks).",
        ),
        (
            Outcome::Equivalent,
            (1.001, 0.995, 1.006),
            "nothing gained: thp changes the wall time of default by no more than 1 % in either direction; wall time 0.1 % more than default (95 % interval -0.5 to +0.6 %, 14 blocks).",
        ),
        (
            Outcome::Worse,
            (1.041, 1.03, 1.05),
            "default is the best of 2 policies: thp has wall time 4.1 % more than default (95 % interval 3.0 to 5.0 %, 14 blocks).",
        ),
        (
            Outcome::WrongAnswer { message: "exit status 1 instead of exit status 0 in block 2".into() },
            (0.5, 0.4, 0.6),
            "no result: no policy but the baseline gave figures that count; thp gave a wrong answer (exit status 1 instead of exit status 0 in block 2).",
        ),
    ] {
        let sentence = conclude(&concluded(outcome, ratio, low, high));
        assert!(sentence.ends_with(words), "{sentence}");
    }
}

#[test]
fn a_decided_policy_is_named_before_those_that_the_noise_hides() {
    let mut comparison = concluded(Outcome::Worse, 1.248, 1.041, 1.366);
    let arms = &mut comparison.analysis.as_mut().unwrap().arms;
    for (arm, blocks_needed, ratio) in [(1, 880, 1.02), (2, 496, 0.97)] {
        arms[arm].outcome = Outcome::Undecided { blocks_needed: Some(blocks_needed) };
        let effect = Effect { blocks: 14, ratio, low: Some(0.8), high: Some(1.2), p_adjusted: Some(0.5) };
        arms[arm].effects.insert(names::WALL_S.to_string(), effect);
    }
    let sentence = conclude(&comparison);
    let worse = "thp is worse than default: wall time 24.8 % more than default (95 % interval 4.1 to 36.6 %, 14 blocks); undecided: ";
    assert!(sentence.starts_with(worse), "{sentence}");
    assert!(
        sentence.contains("; about 496 blocks would settle that one; about 880 blocks would settle all of them"),
        "{sentence}"
    );
}

#[test]
fn an_undecided_sum_names_parts_that_changed_in_opposite_directions() {
    let mut comparison = concluded(Outcome::Undecided { blocks_needed: Some(40) }, 1.061, 0.951, 1.183);
    let arm = &mut comparison.analysis.as_mut().unwrap().arms[3];
    let effect = |ratio, low, high| Effect { blocks: 19, ratio, low: Some(low), high: Some(high), p_adjusted: None };
    arm.effects.insert(names::USER_S.to_string(), effect(0.824, 0.760, 0.906));
    arm.effects.insert(names::SYSTEM_S.to_string(), effect(1.41, 1.21, 1.75));
    let sentence = conclude(&comparison);
    let parts = "; its user time is 17.6 % less (9.4 to 24.0 %), and its system time 41 % more (21 to 75 %)";
    assert!(sentence.contains(parts), "{sentence}");
    comparison.analysis.as_mut().unwrap().arms[3].effects.insert(names::SYSTEM_S.to_string(), effect(1.1, 0.9, 1.3));
    assert!(!conclude(&comparison).contains("its user time"), "one part alone is in the table");
}

#[test]
fn a_policy_that_was_not_held_was_asked_for() {
    let of = |holding, covered_bytes| {
        let mut comparison = concluded(Outcome::Better { best: true }, 0.9, 0.88, 0.92);
        for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == 3) {
            let verdict = &mut record.verdict;
            (verdict.holding, verdict.concerned_bytes, verdict.covered_bytes) = (holding, 100, covered_bytes);
        }
        conclude(&comparison)
    };
    let partly = of(Holding::Partly, 63);
    assert!(
        partly.starts_with(
            "asking for thp is the best of 2 policies: 1.11 times as fast as default (wall time 10.0 % less,"
        ),
        "{partly}"
    );
    assert!(partly.ends_with("; thp was in force on 63 % of the memory."), "{partly}");
    let unknown = of(Holding::Unknown, 63);
    assert!(unknown.ends_with("; it is not known on how much of the memory thp was in force."), "{unknown}");
    let none = of(Holding::NotHeld, 0);
    assert!(
        none.ends_with("; thp was in force on none of the memory, so its pages have no part in its change."),
        "{none}"
    );
    let held = of(Holding::Held, 97);
    assert!(held.starts_with("thp is the best") && held.ends_with("held on 97 % of the memory."), "{held}");
}

/// The comparison ended before its maximum number of blocks, so allowing more blocks would not help.
#[test]
fn a_comparison_that_ended_by_precision_needs_a_smaller_one() {
    let mut comparison = concluded(Outcome::Undecided { blocks_needed: Some(15) }, 0.994, 0.979, 1.009);
    comparison.ended = Ended::Precise;
    let sentence = conclude(&comparison);
    assert!(
        sentence.ends_with(
            "it ended because it was as precise as asked (--precision 1%); a smaller one would settle it: --precision 1.4%."
        ),
        "{sentence}"
    );
    let table = crate::table::render(&comparison, 120);
    assert!(table.contains("to 1.4%") && !table.contains("~15 blocks"), "{table}");
    comparison.design.max_blocks = 14;
    assert!(conclude(&comparison).ends_with("--precision 1.4% --blocks 15."), "{}", conclude(&comparison));
}

#[test]
fn ties_are_named() {
    let mut comparison = concluded(Outcome::Better { best: true }, 0.9, 0.88, 0.92);
    comparison.analysis.as_mut().unwrap().arms[3].tied = vec![4];
    let tied = "thp is tied best with mthp-64k (undecided): 1.11 times as fast as default (wall time 10.0 % less";
    comparison.analysis.as_mut().unwrap().arms[4].outcome = Outcome::Undecided { blocks_needed: None };
    let sentence = conclude(&comparison);
    assert!(sentence.starts_with(tied), "{sentence}");
    comparison.analysis.as_mut().unwrap().arms[4].outcome = Outcome::Better { best: true };
    let sentence = conclude(&comparison);
    assert!(sentence.starts_with("thp is tied best with mthp-64k: 1.11 times as fast"), "{sentence}");
}

#[test]
fn without_others_there_is_nothing_to_conclude() {
    let mut comparison = sample::comparison();
    let unsupported = || Admission::Unsupported(Unsupported { reason: "no".into(), remedy: "none".into() });
    comparison.admissions[1..].fill_with(unsupported);
    let sentence = conclude(&comparison);
    assert!(sentence.starts_with("nothing to compare default (wall time 3."), "{sentence}");
    assert!(sentence.ends_with("none of the 5 other policies is supported here."), "{sentence}");
    comparison.admissions[0] = unsupported();
    assert_eq!(conclude(&comparison), "nothing was measured: the baseline default is not supported here.");
    comparison.design.arms.truncate(1);
    comparison.admissions = sample::comparison().admissions;
    assert!(conclude(&comparison).contains("only the baseline default was asked for"));
}

#[test]
fn the_baseline_against_itself_is_not_a_policy() {
    let mut comparison = sample::comparison();
    let keep = |arm: usize| [0, 5].contains(&arm);
    comparison.design.arms = vec![comparison.design.arms[0].clone(), comparison.design.arms[5].clone()];
    comparison.admissions.truncate(2);
    comparison.admissions[1] = comparison.admissions[0].clone();
    comparison.trials.retain(|record| keep(record.trial.arm));
    comparison.trials.iter_mut().for_each(|record| record.trial.arm = record.trial.arm.min(1));
    sample::analyse(&mut comparison);
    let sentence = conclude(&comparison);
    assert!(sentence.starts_with("A/A: default against itself has wall time 0."), "{sentence}");
    assert!(sentence.ends_with("as it should be, within 1 %."), "{sentence}");
    comparison.analysis.as_mut().unwrap().arms[1].outcome = Outcome::Worse;
    assert!(conclude(&comparison).contains("differences of this size mean nothing here"));
}

#[test]
fn nothing_is_claimed_that_the_tracers_stops_could_have_caused() {
    let comparison = sample::with_controls();
    let mut only = comparison.clone();
    for (arm, analysis) in only.analysis.as_mut().unwrap().arms.iter_mut().enumerate() {
        if ![0, 3].contains(&arm) {
            analysis.outcome = Outcome::Unsupported;
        }
    }
    let sentence = conclude(&only);
    let claim = "nothing is claimed of thp: tracing overhead could explain the difference; wall time 30.";
    assert!(sentence.starts_with(claim), "{sentence}");
    assert!(sentence.contains("; tracing overhead +31."), "{sentence}");
    assert!(!conclude(&comparison).contains("thp is"), "{}", conclude(&comparison));
}

#[test]
fn reports_an_early_end() {
    let mut comparison = sample::comparison();
    comparison.ended = Ended::Interrupted;
    assert!(conclude(&comparison).ends_with("; it was interrupted."));
    comparison.analysis = None;
    assert!(conclude(&comparison).starts_with("no result: it was interrupted before the first block"));
    comparison.ended = Ended::Failed { message: "no space\x1b[2J".into() };
    assert_eq!(conclude(&comparison), "the comparison failed: no space\\x1b[2J.");
}
