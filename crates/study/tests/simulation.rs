//! Whole comparisons of a fake machine: how often they are wrong, and how often they find a real effect.
//!
//! The table of docs/evidence/calibration.md:
//! `cargo test --release -p study --test simulation -- --ignored --nocapture`.

mod common;

use common::{Fake, Noise, design};
use study::comparison::Ended;
use study::runner;
use study::stats::Outcome;

/// Policies of the arms, the baseline first; on the fake machine they are only names.
const POLICIES: [&str; 12] = [
    "default",
    "base",
    "mthp-16k",
    "mthp-32k",
    "mthp-64k",
    "mthp-128k",
    "mthp-256k",
    "mthp-512k",
    "mthp-1m",
    "thp",
    "hugetlb-2m",
    "hugetlb-1g",
];

/// Results of a number of comparisons.
#[derive(Default)]
struct Tally {
    runs: u32,
    /// Comparisons that call an arm without effect better or worse.
    false_claims: u32,
    /// Comparisons that correctly call an arm with an effect better or worse.
    found: u32,
    /// Comparisons with a winner.
    won: u32,
    /// Intervals that do not contain the true ratio, of all arms.
    misses: u32,
    /// Comparisons that call a better arm worse, or a worse one better.
    reversed: u32,
    precise: u32,
    blocks: u64,
    trials: u64,
}

/// Runs comparisons of a baseline with arms whose times have these ratios to the baseline's.
fn tally(runs: u32, ratios: &[f64], noise: Noise, first_seed: u64) -> Tally {
    let mut tally = Tally { runs, ..Tally::default() };
    for seed in first_seed..first_seed + u64::from(runs) {
        let design = design(&POLICIES[..=ratios.len()], seed);
        let all: Vec<f64> = std::iter::once(1.0).chain(ratios.iter().copied()).collect();
        let mut fake = Fake::new(&design, &all, noise, seed ^ 0xa5a5_a5a5);
        let run = runner::compare(&design, &mut fake, &mut |_| ());
        let analysis = run.analysis.expect("blocks that count");
        let claim = |arm: &usize| matches!(analysis.arms[*arm].outcome, Outcome::Better { .. } | Outcome::Worse);
        let without_effect = |arm: &usize| all[*arm] == 1.0;
        let right = |arm: &usize| match analysis.arms[*arm].outcome {
            Outcome::Better { .. } => all[*arm] < 1.0,
            Outcome::Worse => all[*arm] > 1.0,
            _ => false,
        };
        let arms = || 1..all.len();
        tally.false_claims += u32::from(arms().filter(without_effect).any(|arm| claim(&arm)));
        tally.found += u32::from(arms().any(|arm| right(&arm)));
        tally.won += u32::from(analysis.winner().is_some());
        let misses = |arm: &usize| {
            let effect = analysis.arms[*arm].effects["wall_s"];
            !effect.low.zip(effect.high).is_some_and(|(low, high)| low <= all[*arm] && all[*arm] <= high)
        };
        tally.misses += arms().filter(misses).count() as u32;
        tally.reversed += u32::from(arms().any(|arm| claim(&arm) && !without_effect(&arm) && !right(&arm)));
        tally.precise += u32::from(run.ended == Ended::Precise);
        tally.blocks += u64::from(analysis.blocks);
        tally.trials += run.trials.len() as u64;
    }
    tally
}

fn share(count: u32, of: &Tally) -> f64 {
    f64::from(count) / f64::from(of.runs)
}

/// Enough runs that a true rate of 4 % passes and one of 8 % fails, whatever the seeds.
#[test]
fn a_command_compared_with_itself_differs_in_at_most_six_of_a_hundred_runs() {
    for drift in [0.01, 0.02] {
        let tally = tally(600, &[1.0], Noise::drifting(drift), 1);
        assert!(share(tally.false_claims, &tally) <= 0.06, "{} of 600 at drift {drift}", tally.false_claims);
    }
}

#[test]
fn several_arms_make_no_more_false_claims_than_one() {
    let tally = tally(200, &[1.0; 4], Noise::drifting(0.015), 1);
    assert!(share(tally.false_claims, &tally) <= 0.06, "{} of 200", tally.false_claims);
}

#[test]
fn a_true_effect_of_two_percent_is_found_in_nine_of_ten_runs() {
    for drift in [0.01, 0.02] {
        let tally = tally(200, &[1.02], Noise::drifting(drift), 1);
        assert!(share(tally.found, &tally) >= 0.9, "{} of 200 at drift {drift}", tally.found);
    }
    let among_others = tally(100, &[1.02, 1.0, 1.0], Noise::drifting(0.015), 1);
    assert!(share(among_others.found, &among_others) >= 0.9, "{} of 100 among others", among_others.found);
}

#[test]
fn arms_that_are_equally_good_rarely_have_a_winner() {
    let equal = tally(100, &[0.95, 0.95, 0.95], Noise::drifting(0.01), 1);
    assert!(share(equal.won, &equal) <= 0.06, "{} of 100", equal.won);
    let unequal = tally(50, &[0.95, 0.90, 0.95], Noise::drifting(0.01), 1);
    assert!(share(unequal.won, &unequal) >= 0.95, "{} of 50", unequal.won);
}

/// Arms whose outcome is certain stop early, which saves time for the others. Their intervals hold the truth as often as others.
#[test]
fn arms_that_stop_early_have_the_right_outcome_and_intervals() {
    let ratios = [0.95, 0.8, 0.79, 1.1, 1.3, 1.0];
    let tally = tally(100, &ratios, Noise::drifting(0.02), 1);
    assert_eq!((tally.reversed, tally.found), (0, 100));
    assert!(share(tally.misses, &tally) <= 0.06 * ratios.len() as f64, "{} of 600", tally.misses);
    let all = tally.blocks * (ratios.len() as u64 + 1);
    assert!(tally.trials * 10 < all * 9, "{} trials of {all}", tally.trials);
}

#[test]
#[ignore = "prints the table of docs/evidence/calibration.md; takes some minutes of a release build"]
fn table() {
    println!(
        "| true change | arms | trial noise | drift | false claims | interval misses | found | winner | precise | blocks | trials |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let null = [
        (1, 0.01, 0.0),
        (1, 0.01, 0.01),
        (1, 0.01, 0.02),
        (1, 0.02, 0.01),
        (1, 0.03, 0.02),
        (4, 0.01, 0.01),
        (4, 0.01, 0.02),
        (11, 0.01, 0.01),
    ];
    for (arms, trial, drift) in null {
        row("none", &vec![1.0; arms], Noise { trial, ..Noise::drifting(drift) });
    }
    let effect = [(1, 0.01, 0.0), (1, 0.01, 0.01), (1, 0.01, 0.02), (1, 0.02, 0.01), (1, 0.03, 0.02), (4, 0.01, 0.01)];
    for (arms, trial, drift) in effect {
        let ratios: Vec<f64> = (0..arms).map(|arm| if arm == 0 { 1.02 } else { 1.0 }).collect();
        row("+2 % in one", &ratios, Noise { trial, ..Noise::drifting(drift) });
    }
    row("-5 % in all", &[0.95; 3], Noise::drifting(0.01));
    row("-5 %, -7 %, -5 %", &[0.95, 0.93, 0.95], Noise::drifting(0.01));
    row("-5, -20, -21, +10, +30 %, none", &[0.95, 0.8, 0.79, 1.1, 1.3, 1.0], Noise::drifting(0.02));
}

fn row(name: &str, ratios: &[f64], noise: Noise) {
    let runs = if ratios.len() == 1 { 10_000 } else { 2000 };
    let tally = tally(runs, ratios, noise, 1);
    println!(
        "| {name} | {} | {:.0} % | {:.0} % | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.0} % | {:.1} | {:.0} |",
        ratios.len(),
        noise.trial * 100.0,
        noise.drift * 100.0,
        share(tally.false_claims, &tally) * 100.0,
        share(tally.misses, &tally) / ratios.len() as f64 * 100.0,
        share(tally.found, &tally) * 100.0,
        share(tally.won, &tally) * 100.0,
        share(tally.precise, &tally) * 100.0,
        tally.blocks as f64 / f64::from(tally.runs),
        tally.trials as f64 / f64::from(tally.runs)
    );
}
