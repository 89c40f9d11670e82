//! Control arms: the cost of the tracer's stops, and the claims that remain.

mod common;

use common::{Fake, Noise, controlled, design};
use policy::Policy;
use study::comparison::{Design, Ended};
use study::control::Role;
use study::metric::{Direction, names};
use study::runner::{Run, compare};
use study::stats::{Analysis, Outcome, TracerCost, Warning};

/// Enough stops for a sham arm, in half a second.
const MANY: f64 = 2000.0;
/// Too few for one.
const FEW: f64 = 4.0;

fn run(design: &Design, policies: &[(f64, f64, f64)], seed: u64) -> Run {
    compare(design, &mut Fake::traced(design, policies, Noise::quiet(), seed), &mut |_| ())
}

fn analysis(design: &Design, policies: &[(f64, f64, f64)]) -> Analysis {
    run(design, policies, 1).analysis.expect("blocks that count")
}

fn cost(analysis: &Analysis, arm: usize) -> TracerCost {
    analysis.arms[arm].tracer_cost[names::WALL_S]
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.01
}

fn labels(design: &Design) -> Vec<&str> {
    design.arms.iter().map(|arm| arm.label.as_str()).collect()
}

#[test]
fn adds_a_bare_arm_to_every_comparison_and_shams_to_arms_that_stop() {
    let design = controlled(&["default", "base", "thp", "default", "hugetlb-2m"], 1);
    assert_eq!(labels(&design)[5..], ["bare", "sham of thp", "sham of hugetlb-2m"]);
    assert_eq!(design.arms[5].policy, Policy::DEFAULT);
    assert!(matches!(&design.arms[6].role, Role::Sham { of: 2, stops } if stops.to_string() == "thp"));
    assert_eq!(design.arms[6].policy, Policy::DEFAULT);
    // The reference policy is the baseline's, if that needs no stops.
    let design = controlled(&["base", "thp"], 1);
    assert_eq!(labels(&design), ["base", "thp", "bare", "sham of thp"]);
    assert_eq!(design.arms[3].policy.to_string(), "base");
    // A baseline that stops gets a sham arm. `default` is the reference policy and needs none.
    let design = controlled(&["thp", "default", "base"], 1);
    assert_eq!(labels(&design), ["thp", "default", "base", "bare", "sham of thp", "sham of base"]);
    // All arms over boots have the same stops.
    assert_eq!(labels(&controlled(&["direct-map-4k", "direct-map-2m"], 1)).len(), 2);
}

/// The labels of the arms that ran in a block, sorted.
fn ran<'a>(design: &'a Design, run: &Run, block: u32) -> Vec<&'a str> {
    let trials = run.trials.iter().filter(|record| record.trial.block == block);
    let mut ran: Vec<&str> = trials.map(|record| design.arms[record.trial.arm].label.as_str()).collect();
    ran.sort_unstable();
    ran
}

#[test]
fn controls_run_until_they_have_intervals_and_then_in_every_fourth_block() {
    let mut design = controlled(&["default", "thp", "mthp-64k"], 1);
    design.min_blocks = 12;
    let run = run(&design, &[(1.0, 1.02, FEW), (0.9, 1.1, MANY), (0.9, 1.02, FEW)], 1);
    assert_eq!(run.ended, Ended::Precise);
    for block in 0..=run.analysis.as_ref().unwrap().blocks {
        let expected: &[&str] = match block {
            0 => &["bare", "default", "mthp-64k", "sham of mthp-64k", "sham of thp", "thp"],
            1..=6 | 8 | 12 => &["bare", "default", "mthp-64k", "sham of thp", "thp"],
            _ => &["default", "mthp-64k", "thp"],
        };
        assert_eq!(ran(&design, &run, block), expected, "block {block}");
    }
}

/// A loss of 3 %, of which the stops cause 2 %.
#[test]
fn controls_run_in_every_block_while_an_outcome_depends_on_them() {
    let design = controlled(&["default", "thp"], 1);
    let noise = Noise { trial: 0.02, ..Noise::quiet() };
    let mut fake = Fake::traced(&design, &[(1.0, 1.0, FEW), (1.01, 1.02, MANY)], noise, 1);
    let mut depends = vec![false; 2];
    let run = compare(&design, &mut fake, &mut |event| {
        if let study::runner::Event::Block(analysis) = event {
            depends.push(analysis.arms[1].outcome == Outcome::WithinTracerCost);
        }
    });
    let has_controls = |block: &u32| ran(&design, &run, *block).contains(&"sham of thp");
    let often: Vec<u32> = (9..depends.len() as u32 - 1).filter(|block| depends[*block as usize]).collect();
    assert!(often.len() > 4 && often.iter().all(has_controls), "{depends:?}");
    let seldom: Vec<u32> = (9..depends.len() as u32 - 1).filter(|block| !depends[*block as usize]).collect();
    assert!(seldom.iter().all(|block| has_controls(block) == block.is_multiple_of(4)), "{depends:?}");
}

#[test]
fn costs_are_against_the_bare_arm_and_bounds_against_the_baseline() {
    let design = controlled(&["default", "thp", "base"], 1);
    let analysis = analysis(&design, &[(1.0, 1.05, FEW), (0.8, 1.2, MANY), (1.0, 1.05, FEW)]);
    assert!(near(cost(&analysis, 0).of_bare.ratio, 1.05));
    assert_eq!(cost(&analysis, 0).bound, None);
    assert!(near(cost(&analysis, 1).of_bare.ratio, 1.2));
    let bound = cost(&analysis, 1).bound.expect("a sham arm");
    assert!(near(bound.ratio, 1.2 / 1.05) && bound.low.unwrap() < bound.ratio && bound.ratio < bound.high.unwrap());
    assert!(near(cost(&analysis, 2).of_bare.ratio, 1.05), "the baseline's cost, without a sham arm");
    assert_eq!(cost(&analysis, 2).bound, None);
    let warned: Vec<usize> = analysis
        .warnings
        .iter()
        .filter_map(|warning| match warning {
            Warning::TracerCost { arm, .. } => Some(*arm),
            _ => None,
        })
        .collect();
    assert_eq!(warned, [0, 1], "base has the cost of default");
}

/// The tree of 90 subshells: the policy does nothing, and its stops take the time.
#[test]
fn a_loss_that_the_stops_could_have_caused_is_not_claimed() {
    let design = controlled(&["default", "thp"], 1);
    let analysis = analysis(&design, &[(1.0, 1.1, FEW), (1.0, 2.45, MANY)]);
    assert!(analysis.arms[1].effects[names::WALL_S].ratio > 2.0);
    assert_eq!(analysis.arms[1].outcome, Outcome::WithinTracerCost);
    assert!(analysis.best().is_empty());
}

#[test]
fn a_loss_beyond_the_stops_is_kept() {
    let design = controlled(&["default", "thp"], 1);
    let analysis = analysis(&design, &[(1.0, 1.0, FEW), (1.2, 1.05, MANY)]);
    assert_eq!(analysis.arms[1].outcome, Outcome::Worse);
}

#[test]
fn a_gain_that_stops_cannot_explain_is_kept() {
    let design = controlled(&["default", "thp"], 1);
    for cost in [1.0, 1.05, 1.1] {
        let analysis = analysis(&design, &[(1.0, 1.0, FEW), (0.8, cost, MANY)]);
        assert_eq!(analysis.arms[1].outcome, Outcome::Better { best: true }, "{cost}");
    }
}

#[test]
fn a_gain_that_the_baselines_stops_could_have_caused_is_not_claimed() {
    let design = controlled(&["thp", "default"], 1);
    let stopped = analysis(&design, &[(1.0, 1.3, MANY), (1.0, 1.0, FEW)]);
    assert_eq!(stopped.arms[1].outcome, Outcome::WithinTracerCost);
    assert!(near(cost(&stopped, 1).bound.unwrap().ratio, 1.0 / 1.3));
    // `default` is the reference policy: the baseline has the effect of large pages.
    let faster = analysis(&design, &[(1.25, 1.3, MANY), (1.0, 1.0, FEW)]);
    assert_eq!(faster.arms[1].outcome, Outcome::Better { best: true });
    // A loss against a baseline that stops more often is a real one.
    let slower = analysis(&design, &[(0.8, 1.05, MANY), (1.0, 1.0, FEW)]);
    assert_eq!(slower.arms[1].outcome, Outcome::Worse);
}

#[test]
fn a_gain_that_the_stops_hide_is_not_called_equivalent() {
    let design = controlled(&["default", "thp"], 1);
    let hidden = analysis(&design, &[(1.0, 1.0, FEW), (0.9, 1.0 / 0.9, MANY)]);
    assert_eq!(hidden.arms[1].outcome, Outcome::WithinTracerCost);
    let nothing = analysis(&design, &[(1.0, 1.0, FEW), (1.0, 1.0, MANY)]);
    assert_eq!(nothing.arms[1].outcome, Outcome::Equivalent);
}

#[test]
fn no_arm_beats_another_because_of_its_stops() {
    let design = controlled(&["default", "thp", "mthp-64k"], 1);
    let analysis = analysis(&design, &[(1.0, 1.0, FEW), (0.8, 1.0, FEW), (0.8, 1.1, MANY)]);
    assert_eq!(analysis.best(), [1, 2]);
    assert_eq!((&analysis.arms[1].tied, &analysis.arms[2].tied), (&vec![2], &vec![1]));
}

/// Stops slow a rate as they slow a time: it falls.
#[test]
fn a_rate_that_the_stops_could_have_lowered_is_not_claimed() {
    let mut design = controlled(&["default", "thp"], 1);
    design.metrics[0].direction = Direction::Higher;
    let lowered = analysis(&design, &[(1.0, 1.0, FEW), (1.0, 0.8, MANY)]);
    assert_eq!(lowered.arms[1].outcome, Outcome::WithinTracerCost);
    let raised = analysis(&design, &[(1.0, 1.0, FEW), (1.5, 0.8, MANY)]);
    assert_eq!(raised.arms[1].outcome, Outcome::Better { best: true });
}

#[test]
fn control_arms_have_no_effects_and_never_win() {
    let with = controlled(&["default", "thp"], 1);
    let analysis = analysis(&with, &[(1.0, 1.5, FEW), (1.0, 1.5, MANY)]);
    assert_eq!(analysis.arms[2].outcome, Outcome::Control);
    assert!(analysis.arms[2].medians[names::WALL_S] < analysis.arms[0].medians[names::WALL_S]);
    assert!(analysis.arms[2..].iter().all(|arm| arm.effects.is_empty() && arm.tied.is_empty()));
    assert!(analysis.best().is_empty());
}

#[test]
fn a_design_without_control_arms_ignores_stops() {
    let design = design(&["default", "thp"], 1);
    let mut fake = Fake::new(&design, &[1.0, 2.0], Noise::quiet(), 1);
    fake.arms[1].stops = Some(MANY);
    let analysis = compare(&design, &mut fake, &mut |_| ()).analysis.unwrap();
    assert_eq!(analysis.arms[1].outcome, Outcome::Worse);
    assert!(analysis.arms[1].tracer_cost.is_empty());
}

/// A bare arm with a different answer shows no cost, and does not end the run.
#[test]
fn a_bare_arm_with_another_answer_is_dropped() {
    let design = controlled(&["default", "thp"], 1);
    let mut fake = Fake::traced(&design, &[(1.0, 1.0, FEW), (2.0, 1.0, MANY)], Noise::quiet(), 1);
    fake.arms[2].exits = vec![3];
    let run = compare(&design, &mut fake, &mut |_| ());
    assert_eq!(run.ended, Ended::Precise);
    let bare = run.trials.iter().filter(|record| record.trial.arm == 2).count();
    assert_eq!(bare, 2, "once more, and then no longer");
    assert!(run.analysis.unwrap().arms[0].tracer_cost.is_empty());
}

/// Stops that cost between nothing and a fifth, and a policy that does nothing: at most 6 of 100 comparisons make a
/// claim, as without a tracer.
#[test]
fn a_policy_without_effect_is_rarely_claimed_whatever_its_stops_cost() {
    for cost in [1.0, 1.01, 1.05, 1.2] {
        let mut false_claims = 0;
        for seed in 1..=200 {
            let design = controlled(&["default", "thp"], seed);
            let noise = Noise::drifting(0.01);
            let mut fake = Fake::traced(&design, &[(1.0, 1.0, FEW), (1.0, cost, MANY)], noise, seed ^ 0x5a5a);
            let analysis = compare(&design, &mut fake, &mut |_| ()).analysis.unwrap();
            let claims = matches!(analysis.arms[1].outcome, Outcome::Better { .. } | Outcome::Worse);
            false_claims += u32::from(claims);
        }
        assert!(false_claims <= 12, "{false_claims} of 200 with stops that cost {cost}");
    }
}

/// A change that the stops cannot have caused is found as without them.
#[test]
fn finds_a_gain_despite_stops_and_a_loss_well_beyond_them() {
    for (ratio, cost) in [(0.9, 1.02), (1.1, 1.02)] {
        let mut found = 0;
        for seed in 1..=100 {
            let design = controlled(&["default", "thp"], seed);
            let noise = Noise::drifting(0.01);
            let mut fake = Fake::traced(&design, &[(1.0, 1.0, FEW), (ratio, cost, MANY)], noise, seed ^ 0x5a5a);
            let analysis = compare(&design, &mut fake, &mut |_| ()).analysis.unwrap();
            let right = match analysis.arms[1].outcome {
                Outcome::Better { .. } => ratio < 1.0,
                Outcome::Worse => ratio > 1.0,
                _ => false,
            };
            found += u32::from(right);
        }
        assert!(found >= 90, "{found} of 100 at {ratio}");
    }
}
