//! The analysis of given trials.

mod common;

use common::{admitted, design, normal, record, trials, uniform};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::comparison::Design;
use study::machine::SettingChange;
use study::metric::{Direction, Metric, Unit, names};
use study::size::PageSize;
use study::stats::{Analysis, Outcome, Warning, analyse};
use study::trial::{Exit, Trial, TrialRecord};
use study::verdict::Holding;

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
fn a_policy_that_was_not_held_never_wins() {
    let design = design(&["default", "mthp-64k", "thp"], 1);
    for holding in [Holding::NotHeld, Holding::Partly, Holding::Unknown] {
        let mut trials = noisy(&[1.0, 0.9, 0.5], 12, 0.005, 3);
        let of_thp = trials.iter_mut().filter(|record| record.trial.arm == 2);
        of_thp.for_each(|record| record.verdict.holding = holding);
        let analysis = analysis(&design, &trials);
        assert_eq!(outcomes(&analysis), [Outcome::Baseline, BEST, Outcome::NotHeld]);
        assert_eq!(analysis.winner(), Some(1));
        assert!(analysis.arms[2].effects["wall_s"].ratio < 0.6, "its figures are shown all the same");
    }
}

#[test]
fn nobody_is_best_against_a_baseline_that_was_not_held() {
    let design = design(&["base", "thp"], 1);
    let mut trials = noisy(&[1.0, 0.5], 12, 0.005, 3);
    let of_base = trials.iter_mut().filter(|record| record.trial.arm == 0);
    of_base.for_each(|record| record.verdict.holding = Holding::Partly);
    let analysis = analysis(&design, &trials);
    assert_eq!(analysis.arms[1].outcome, NOT_BEST);
    assert!(analysis.warnings.contains(&Warning::BaselineNotHeld));
}

#[test]
fn the_aa_arm_is_never_best_and_is_warned_of() {
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
fn noise_is_undecided_with_the_blocks_that_it_takes() {
    let design = design(&["default", "thp"], 1);
    let estimates: Vec<u32> = (0..20)
        .filter_map(|seed| match analysis(&design, &noisy(&[1.0, 1.0], 12, 0.05, seed)).arms[1].outcome {
            Outcome::Undecided { blocks_needed } => blocks_needed,
            _ => None,
        })
        .collect();
    // The half width at n blocks is about 2.05 * 1.41 * 5 % / sqrt(n) / 0.98: 1 % takes some 220 blocks, and
    // more or fewer as the estimate lies in the band or outside of it.
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
fn a_metric_that_is_missing_in_some_blocks_counts_in_the_others() {
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
    // A block without one of its trials, and one whose only trial of an arm was rejected.
    all.retain(|record| (record.trial.arm, record.trial.block) != (1, 4));
    let rejected = all.iter_mut().find(|record| (record.trial.arm, record.trial.block) == (0, 6)).unwrap();
    rejected.rejected = vec![SettingChange { path: "x".into(), before: None, after: None }];
    assert_eq!((whole.blocks, analysis(&design, &all).blocks), (10, 8));
    // The repeated trial counts in its place.
    let trial = Trial { arm: 0, block: 6, position: 0, attempt: 1 };
    all.push(record(trial, Holding::Held, &[(names::WALL_S, 1.0)]));
    assert_eq!(analysis(&design, &all).blocks, 9);
}

#[test]
fn nothing_follows_from_nothing() {
    let design = design(&["default", "thp"], 1);
    assert_eq!(analyse(&design, &[], &[]), None);
    assert_eq!(analyse(&design, &noisy(&[1.0, 1.0], 0, 0.01, 1), &admitted(2)), None);
    let one = analysis(&design, &noisy(&[1.0, 0.9], 1, 0.01, 1));
    let effect = one.arms[1].effects["wall_s"];
    assert_eq!((effect.low, effect.high, effect.p_adjusted), (None, None, Some(1.0)));
    assert_eq!(one.arms[1].outcome, Outcome::Undecided { blocks_needed: None });
}

#[test]
fn records_that_fit_no_design_do_no_harm() {
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
fn a_killed_arm_says_by_which_signal() {
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
    fn exchanging_an_arm_and_the_baseline_inverts_the_change(seed in 0u64..1000) {
        let forth = design(&["default", "thp"], 1);
        let back = Design { baseline: 1, ..forth.clone() };
        let trials = noisy(&[1.0, 0.97], 16, 0.01, seed);
        let (one, two) = (analysis(&forth, &trials).arms[1].effects["wall_s"], analysis(&back, &trials).arms[0].effects["wall_s"]);
        prop_assert!((one.ratio * two.ratio - 1.0).abs() < 1e-12);
        prop_assert!((one.low.unwrap() * two.high.unwrap() - 1.0).abs() < 1e-12);
        prop_assert_eq!(one.p_adjusted, two.p_adjusted);
    }
}

mod warnings {
    use super::*;

    /// Warnings of so many comparisons with values of this kind, as a share of the comparisons.
    fn rate(is: fn(&Warning) -> bool, blocks: u32, mut value: impl FnMut(&mut Pcg64, u32) -> f64) -> f64 {
        let design = design(&["default", "thp"], 1);
        let runs = 300;
        let warned = (0..runs).filter(|seed| {
            let mut random = Pcg64::seed_from_u64(*seed);
            let all = trials(2, blocks, |_, block| value(&mut random, block));
            analysis(&design, &all).warnings.iter().any(is)
        });
        warned.count() as f64 / runs as f64
    }

    fn log_normal(random: &mut Pcg64) -> f64 {
        (0.03 * normal(random)).exp()
    }

    fn with_outliers(random: &mut Pcg64) -> f64 {
        log_normal(random) * if uniform(random) < 0.03 { 1.1 + 0.5 * uniform(random) } else { 1.0 }
    }

    fn drift(warning: &Warning) -> bool {
        matches!(warning, Warning::Drift { .. })
    }

    fn bimodal(warning: &Warning) -> bool {
        matches!(warning, Warning::Bimodal { .. })
    }

    fn outliers(warning: &Warning) -> bool {
        matches!(warning, Warning::Outliers { .. })
    }

    #[test]
    fn two_groups_are_seen_and_one_group_is_not_taken_for_two() {
        for blocks in [12, 20, 60] {
            assert!(rate(bimodal, blocks, |random, _| log_normal(random)) <= 0.01, "{blocks}");
            assert!(rate(bimodal, blocks, |random, _| with_outliers(random)) <= 0.02, "{blocks}");
            assert!(rate(bimodal, blocks, |random, _| 1.0 + uniform(random)) <= 0.05, "{blocks}");
            assert!(
                rate(bimodal, blocks, |random, block| log_normal(random) * (1.0 + 0.01 * f64::from(block))) <= 0.02
            );
            let two = |random: &mut Pcg64, _| log_normal(random) * if uniform(random) < 0.5 { 1.3 } else { 1.0 };
            assert!(rate(bimodal, blocks, two) >= 0.9, "{blocks}");
        }
    }

    #[test]
    fn a_drift_is_seen_and_noise_is_not_taken_for_one() {
        for blocks in [8, 20, 60] {
            assert!(rate(drift, blocks, |random, _| log_normal(random)) <= 0.02, "{blocks}");
            let warming = |random: &mut Pcg64, block| log_normal(random) * (-0.02 * f64::from(block)).exp();
            assert!(rate(drift, blocks.max(20), warming) >= 0.95, "{blocks}");
        }
    }

    #[test]
    fn outliers_are_seen_and_tails_are_not_taken_for_them() {
        assert!(rate(outliers, 30, |random, _| log_normal(random)) <= 0.02);
        let one_in_fifteen = |random: &mut Pcg64, block: u32| log_normal(random) * if block == 7 { 1.5 } else { 1.0 };
        assert!(rate(outliers, 30, one_in_fifteen) >= 0.98);
    }

    #[test]
    fn the_tracer_and_short_runs_are_seen_from_their_limits_on() {
        let design = design(&["default", "thp"], 1);
        let with = |wall_s: f64, tracer_s: f64| {
            let mut all = trials(2, 8, |_, _| wall_s);
            all.iter_mut().for_each(|record| {
                record.observations.push(study::metric::Observation::measured(names::TRACER_S, tracer_s));
            });
            analysis(&design, &all).warnings
        };
        assert_eq!(with(1.0, 0.009), []);
        let tracer: Vec<Warning> = with(1.0, 0.02);
        assert_eq!(tracer, [Warning::TracerLoad { arm: 0, ratio: 0.02 }, Warning::TracerLoad { arm: 1, ratio: 0.02 }]);
        assert_eq!(with(0.01, 0.0), [Warning::ShortRuns { wall_s: 0.01 }]);
    }

    #[test]
    fn looks_without_a_limit_are_told_where_the_wall_time_contains_them() {
        let with = |prove_all: bool, looks_s: f64| {
            let mut all = trials(2, 8, |_, _| 1.0);
            let of_thp = all.iter_mut().filter(|record| record.trial.arm == 1);
            of_thp.for_each(|record| {
                record.observations.push(study::metric::Observation::measured(names::LOOKS_S, looks_s));
            });
            analysis(&study::comparison::Design { prove_all, ..design(&["default", "thp"], 1) }, &all).warnings
        };
        assert_eq!((with(true, 0.0), with(true, 0.0009), with(false, 0.2)), (vec![], vec![], vec![]));
        assert_eq!(with(true, 0.002), [Warning::LooksInWall { arm: 1, ratio: 0.002 }]);
    }

    #[test]
    fn where_the_first_process_ends_cpu_time_decides() {
        use study::metric::Observation;
        let with = |cpu_s: f64, outlived_cpu_s: f64, outlived_s: f64, design: &study::comparison::Design| {
            let mut all = trials(2, 8, |_, _| 0.002);
            for record in &mut all {
                let faster = if record.trial.arm == 1 { 0.5 } else { 1.0 };
                record.observations.extend([
                    Observation::measured(names::CPU_S, cpu_s * faster),
                    Observation::measured(names::OUTLIVED_S, outlived_s),
                    Observation::measured(names::OUTLIVED_CPU_S, outlived_cpu_s * faster),
                ]);
            }
            analysis(design, &all)
        };
        let metrics = study::metric::Metric::of_every_trial();
        let plain = study::comparison::Design { metrics, ..design(&["default", "thp"], 1) };
        let daemon = with(1.0, 0.9, 1.0, &plain);
        assert_eq!(daemon.primary, names::CPU_S);
        assert_eq!(daemon.warnings, [Warning::FirstProcessEnds { ratio: 0.9, cpu_decides: true }]);
        assert_eq!(daemon.arms[1].outcome, Outcome::Better { best: true }, "halved, though its wall time is the same");
        let idle = with(1.0, 0.02, 0.2, &plain);
        assert_eq!(idle.warnings, [Warning::FirstProcessEnds { ratio: 0.02, cpu_decides: true }]);
        for (outlived_cpu_s, outlived_s) in [(0.05, 0.05), (0.0, 0.0)] {
            let usual = with(1.0, outlived_cpu_s, outlived_s, &plain);
            assert_eq!(
                (usual.primary.as_str(), &usual.warnings[..]),
                (names::WALL_S, &[Warning::ShortRuns { wall_s: 0.002 }][..])
            );
        }
        let chosen = study::comparison::Design { primary: names::CPU_S.into(), ..plain };
        let warned = with(1.0, 0.9, 1.0, &chosen).warnings;
        assert_eq!(warned, [Warning::FirstProcessEnds { ratio: 0.9, cpu_decides: false }]);
        assert!(!warned[0].describe(&chosen.arms).contains("decides"));
    }

    #[test]
    fn shared_memory_is_named_where_it_is_much() {
        let design = design(&["default", "thp"], 1);
        let with = |shared_bytes: u64, concerned_bytes: u64| {
            let mut all = trials(2, 8, |_, _| 1.0);
            for record in &mut all {
                let observation = study::metric::Observation::measured(names::SHARED_BYTES, shared_bytes as f64);
                record.observations.push(observation);
                record.verdict.concerned_bytes = concerned_bytes;
            }
            analysis(&design, &all).warnings
        };
        let postgres = with(390 << 20, 38 << 20);
        assert_eq!(postgres, [Warning::SharedMemory { bytes: 390 << 20, concerned_bytes: 38 << 20 }]);
        assert_eq!(
            postgres[0].describe(&design.arms),
            "390M of shared memory is no policy's concern, beside 38M that is"
        );
        assert_eq!((with(1 << 19, 0), with(2 << 20, 38 << 20)), (vec![], vec![]));
        assert_eq!(with(2 << 20, 0).len(), 1);
    }

    #[test]
    fn a_guest_whose_free_memory_is_taken_is_warned() {
        let design = design(&["default", "thp"], 1);
        let mut all = trials(2, 8, |_, _| 1.0);
        assert_eq!(analysis(&design, &all).warnings, []);
        all[3].state_before.reported_block = Some(PageSize::M2);
        let warnings = analysis(&design, &all).warnings;
        assert_eq!(warnings, [Warning::FreeMemoryReported { block: PageSize::M2, said_by: None }]);
        assert!(warnings[0].describe(&design.arms).contains("blocks of 2M and more"));
    }

    #[test]
    fn warnings_name_the_arm_and_the_figures() {
        let design = design(&["default", "thp"], 1);
        let bimodal = Warning::Bimodal { arm: 1, low: 0.0123456, high: 1236.0 };
        let text = bimodal.describe(&design.arms);
        assert!(text.starts_with("the samples of thp fall into two groups, around 0.01235 and 1236 "), "{text}");
        let rejected = Warning::Rejected { count: 1, path: "/x".into() };
        assert!(rejected.describe(&design.arms).starts_with("1 trial was rejected and repeated"));
        assert_eq!(
            Warning::Drift { ratio: 0.95 }.describe(&[]),
            "the baseline drifted by -5.0 % from the first block to the last"
        );
    }
}
