//! The analysis of given trials.

mod common;

use common::{admitted, design, normal, record, trials};
use policy::Exit;
use policy::machine::SettingChange;
use policy::verdict::Holding;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::comparison::Design;
use study::metric::{Direction, Metric, Unit, names};
use study::stats::{Analysis, Outcome, Warning, analyse};
use study::trial::{Trial, TrialRecord};

const BEST: Outcome = Outcome::Better { best: true };
const NOT_BEST: Outcome = Outcome::Better { best: false };

/// Trials of arms with these ratios, and noise of this standard deviation.
fn noisy(ratios: &[f64], blocks: u32, deviation: f64, seed: u64) -> Vec<TrialRecord> {
    let mut random = Pcg64::seed_from_u64(seed);
    trials(ratios.len(), blocks, |arm, _| ratios[arm] * (deviation * normal(&mut random)).exp())
}

fn analysis(design: &Design, trials: &[TrialRecord]) -> Analysis {
    analyse(design, trials, &admitted(design.arms.len())).expect("blocks that count")
}

fn outcomes(analysis: &Analysis) -> Vec<Outcome> {
    analysis.arms.iter().map(|arm| arm.outcome.clone()).collect()
}

#[test]
fn the_winner_beats_every_other_arm() {
    let design = design(&["default", "base", "mthp-64k", "thp"], 1);
    let analysis = analysis(&design, &noisy(&[1.0, 1.1, 0.9, 0.8], 12, 0.005, 1));
    assert_eq!(outcomes(&analysis), [Outcome::Baseline, Outcome::Worse, NOT_BEST, BEST]);
    assert_eq!((analysis.winner(), analysis.best()), (Some(3), vec![3]));
    let effect = analysis.arms[3].effects["wall_s"];
    assert!((effect.ratio - 0.8).abs() < 0.005);
    assert!(effect.low.unwrap() < 0.8 && 0.8 < effect.high.unwrap());
}

#[test]
fn arms_that_do_not_differ_are_tied_best() {
    let design = design(&["default", "mthp-64k", "thp"], 1);
    let analysis = analysis(&design, &noisy(&[1.0, 0.8, 0.8], 12, 0.005, 2));
    assert_eq!(outcomes(&analysis), [Outcome::Baseline, BEST, BEST]);
    assert_eq!((analysis.winner(), analysis.best()), (None, vec![1, 2]));
    assert_eq!((&analysis.arms[1].tied, &analysis.arms[2].tied), (&vec![2], &vec![1]));
}

#[test]
fn the_effect_of_a_request_is_claimed_even_if_the_policy_was_not_held() {
    let design = design(&["default", "mthp-64k", "thp"], 1);
    for holding in [Holding::NotHeld, Holding::Partly, Holding::Unknown] {
        let mut trials = noisy(&[1.0, 0.9, 0.5], 12, 0.005, 3);
        let of_thp = trials.iter_mut().filter(|record| record.trial.arm == 2);
        of_thp.for_each(|record| record.verdict.holding = holding);
        let analysis = analysis(&design, &trials);
        assert_eq!(outcomes(&analysis), [Outcome::Baseline, NOT_BEST, BEST]);
        assert_eq!(analysis.winner(), Some(2));
    }
}

#[test]
fn no_arm_is_best_against_a_baseline_that_was_not_held() {
    let design = design(&["base", "thp"], 1);
    let mut trials = noisy(&[1.0, 0.5], 12, 0.005, 3);
    let of_base = trials.iter_mut().filter(|record| record.trial.arm == 0);
    of_base.for_each(|record| record.verdict.holding = Holding::Partly);
    let analysis = analysis(&design, &trials);
    assert_eq!(analysis.arms[1].outcome, NOT_BEST);
    assert!(analysis.warnings.contains(&Warning::BaselineNotHeld));
}

#[test]
fn the_aa_arm_is_never_best_and_its_difference_is_a_warning() {
    let design = design(&["default", "default", "thp"], 1);
    let analysis = analysis(&design, &noisy(&[1.0, 0.9, 0.95], 12, 0.005, 4));
    assert_eq!(outcomes(&analysis), [Outcome::Baseline, NOT_BEST, BEST]);
    assert_eq!(analysis.winner(), Some(2));
    assert!(analysis.warnings.contains(&Warning::AaDiffers { arm: 1 }));
}

#[test]
fn a_rate_is_better_when_it_is_higher() {
    let mut design = design(&["default", "thp"], 1);
    let trials = noisy(&[1.0, 1.2], 12, 0.005, 5);
    assert_eq!(analysis(&design, &trials).arms[1].outcome, Outcome::Worse);
    design.metrics[0].direction = Direction::Higher;
    assert_eq!(analysis(&design, &trials).arms[1].outcome, BEST);
}

#[test]
fn a_difference_that_does_not_matter_is_equivalent() {
    let design = design(&["default", "thp"], 1);
    assert_eq!(analysis(&design, &noisy(&[1.0, 1.003], 12, 0.001, 6)).arms[1].outcome, Outcome::Equivalent);
}

#[test]
fn noise_is_undecided_with_an_estimate_of_the_blocks_needed() {
    let design = design(&["default", "thp"], 1);
    let estimates: Vec<u32> = (0..20)
        .filter_map(|seed| match analysis(&design, &noisy(&[1.0, 1.0], 12, 0.05, seed)).arms[1].outcome {
            Outcome::Undecided { blocks_needed } => blocks_needed,
            _ => None,
        })
        .collect();
    // The half width at n blocks is about 2.05 * 1.41 * 5 % / sqrt(n) / 0.98: 1 % takes some 220 blocks, and more or
    // fewer depending on whether the estimate is inside or outside the band.
    assert!(estimates.len() >= 15, "{estimates:?}");
    let mut sorted = estimates.clone();
    sorted.sort();
    let median = sorted[sorted.len() / 2];
    assert!((100..900).contains(&median), "{sorted:?}");
}

#[test]
fn a_metric_that_can_be_zero_has_no_ratio_and_no_nan() {
    let mut design = design(&["default", "thp"], 1);
    design.metrics.push(Metric::new(names::MAJOR_FAULTS, Unit::Count, Direction::Lower));
    design.metrics.push(Metric::new(names::DTLB_WALKS, Unit::Count, Direction::Lower));
    let mut all = noisy(&[1.0, 0.9], 10, 0.005, 7);
    for record in &mut all {
        let faults = f64::from(record.trial.block % 2);
        record.observations.push(study::metric::Observation::measured(names::MAJOR_FAULTS, faults));
    }
    let analysis = analysis(&design, &all);
    let thp = &analysis.arms[1];
    assert_eq!(thp.effects.keys().collect::<Vec<_>>(), ["wall_s"]);
    assert_eq!(thp.medians["major_faults"], 0.5);
    assert!(!thp.medians.contains_key("dtlb_walks"));
}

#[test]
fn a_metric_missing_in_some_blocks_counts_in_the_others() {
    let mut design = design(&["default", "thp", "base"], 1);
    design.metrics.push(Metric::new("tps", Unit::Custom, Direction::Higher));
    let mut all = noisy(&[1.0, 0.9, 1.0], 20, 0.005, 7);
    for record in &mut all {
        if record.trial.block > 4 || record.trial.arm != 1 {
            let value = if record.trial.arm == 1 { 1.5 } else { 1.0 };
            record.observations.push(study::metric::Observation::measured("tps", value));
        }
    }
    let analysis = analysis(&design, &all);
    let effect = analysis.arms[1].effects["tps"];
    assert_eq!((effect.blocks, effect.ratio), (16, 1.5f64.ln().exp()));
    assert_eq!(analysis.arms[2].effects["tps"].p_adjusted, Some(1.0));
}

#[test]
fn only_complete_blocks_count() {
    let design = design(&["default", "thp"], 1);
    let mut all = noisy(&[1.0, 0.9], 10, 0.005, 8);
    let whole = analysis(&design, &all);
    // A block that lacks a trial, and a block whose only trial of an arm was rejected.
    all.retain(|record| (record.trial.arm, record.trial.block) != (1, 4));
    let rejected = all.iter_mut().find(|record| (record.trial.arm, record.trial.block) == (0, 6)).unwrap();
    rejected.rejected = vec![SettingChange { path: "x".into(), before: None, after: None }];
    assert_eq!((whole.blocks, analysis(&design, &all).blocks), (10, 8));
    // The repeated trial replaces it.
    let trial = Trial { arm: 0, block: 6, position: 0, attempt: 1 };
    all.push(record(trial, Holding::Held, &[(names::WALL_S, 1.0)]));
    assert_eq!(analysis(&design, &all).blocks, 9);
}

#[test]
fn no_trials_have_no_analysis_and_one_block_has_no_interval() {
    let design = design(&["default", "thp"], 1);
    assert_eq!(analyse(&design, &[], &[]), None);
    assert_eq!(analyse(&design, &noisy(&[1.0, 1.0], 0, 0.01, 1), &admitted(2)), None);
    let one = analysis(&design, &noisy(&[1.0, 0.9], 1, 0.01, 1));
    let effect = one.arms[1].effects["wall_s"];
    assert_eq!((effect.low, effect.high, effect.p_adjusted), (None, None, Some(1.0)));
    assert_eq!(one.arms[1].outcome, Outcome::Undecided { blocks_needed: None });
}

#[test]
fn records_of_unknown_arms_are_ignored() {
    let design = design(&["default", "thp"], 1);
    let mut all = noisy(&[1.0, 0.9], 10, 0.005, 8);
    let before = analysis(&design, &all);
    all.push(record(Trial { arm: 9, block: 3, position: 0, attempt: 0 }, Holding::Held, &[(names::WALL_S, f64::NAN)]));
    assert_eq!(analysis(&design, &all), before);
}

#[test]
fn another_output_is_a_wrong_answer() {
    let design = design(&["default", "thp"], 1);
    let mut all = noisy(&[1.0, 0.9], 10, 0.005, 8);
    for record in &mut all {
        let hash = if record.trial.arm == 1 && record.trial.block == 2 { "bb" } else { "aa" };
        record.answer.stdout_sha256 = Some(hash.repeat(32));
    }
    let Outcome::WrongAnswer { message } = &analysis(&design, &all).arms[1].outcome else { panic!() };
    assert!(message.contains("block 2: sha256 bbbbbbbbbbbb instead of sha256 aaaaaaaaaaaa"), "{message}");
}

#[test]
fn the_outcome_of_a_killed_arm_names_the_signal() {
    let design = design(&["default", "thp"], 1);
    let mut all = noisy(&[1.0, 0.9], 10, 0.005, 8);
    all.iter_mut().filter(|record| record.trial.arm == 1).for_each(|record| record.answer.exit = Exit::Signal(11));
    let Outcome::WrongAnswer { message } = &analysis(&design, &all).arms[1].outcome else { panic!() };
    assert_eq!(message, "killed by signal 11 instead of exit status 0 in block 0");
}

#[test]
fn an_analysis_survives_json() {
    let design = design(&["default", "base", "thp"], 1);
    let before = analysis(&design, &noisy(&[1.0, 1.1, 0.8], 12, 0.005, 1));
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Analysis>(&text).unwrap(), before);
}

proptest! {
    #![proptest_config(testing::properties(40))]

    #[test]
    fn the_unit_of_the_metric_does_not_matter(seed in 0u64..1000, scale in 1e-6..1e6f64) {
        let design = design(&["default", "base", "thp"], 1);
        let before = analysis(&design, &noisy(&[1.0, 1.01, 0.98], 16, 0.01, seed));
        let mut scaled = noisy(&[1.0, 1.01, 0.98], 16, 0.01, seed);
        scaled.iter_mut().for_each(|record| record.observations[0].value *= scale);
        let after = analysis(&design, &scaled);
        for (before, after) in before.arms.iter().zip(&after.arms).skip(1) {
            let (before, after) = (before.effects["wall_s"], after.effects["wall_s"]);
            prop_assert!((before.ratio - after.ratio).abs() < 1e-9);
            prop_assert!((before.high.unwrap() - after.high.unwrap()).abs() < 1e-9);
            prop_assert_eq!(before.p_adjusted, after.p_adjusted);
        }
    }

    #[test]
    fn swapping_an_arm_and_the_baseline_inverts_the_change(seed in 0u64..1000) {
        let forth = design(&["default", "thp"], 1);
        let back = Design { baseline: 1, ..forth.clone() };
        let trials = noisy(&[1.0, 0.97], 16, 0.01, seed);
        let (one, two) = (analysis(&forth, &trials).arms[1].effects["wall_s"], analysis(&back, &trials).arms[0].effects["wall_s"]);
        prop_assert!((one.ratio * two.ratio - 1.0).abs() < 1e-12);
        prop_assert!((one.low.unwrap() * two.high.unwrap() - 1.0).abs() < 1e-12);
        prop_assert_eq!(one.p_adjusted, two.p_adjusted);
    }
}
