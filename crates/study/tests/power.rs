//! How often comparisons find an effect that was planted into recorded noise, and how often they claim one without it: this
//! program, and Welch's interval for runs of one command after all runs of the other.
//!
//! The table of docs/evidence/speed.md:
//! `cargo test --release -p study --test power -- --ignored --nocapture`.

mod common;

use common::{Fake, Noise, Recording};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use study::comparison::Design;
use study::runner::compare;
use study::stats::Outcome;
use study::trial::Arm;
use study::variant::Variant;

/// Claims about a command that takes `ratio` of the other's time.
#[derive(Default)]
struct Claims {
    right: u32,
    wrong: u32,
    trials: u64,
    /// Half widths of the intervals, as logarithms.
    half_widths: Vec<f64>,
}

impl Claims {
    fn add(&mut self, claim: Option<f64>, ratio: f64) {
        match claim {
            Some(found) if (found > 1.0) == (ratio > 1.0) && ratio != 1.0 => self.right += 1,
            Some(_) => self.wrong += 1,
            None => {}
        }
    }

    fn half_width(&mut self) -> f64 {
        self.half_widths.sort_by(f64::total_cmp);
        self.half_widths.get(self.half_widths.len() / 2).map_or(f64::NAN, |half| half.exp_m1())
    }
}

/// A command and a variant of it, each with a bare arm.
fn design(seed: u64, budget_s: f64) -> Design {
    let variant = |name: &str| Variant { name: name.into(), command: vec![name.into()], ..Variant::default() };
    let plain = common::design(&["default"], seed);
    let arm = |name: &str| Arm { label: name.into(), variant: Some(variant(name)), ..plain.arms[0].clone() };
    let mut design = Design { arms: vec![arm("one"), arm("other")], ..plain }.with_controls(|_| false);
    design.max_time_s = Some(budget_s);
    design
}

/// `runs` comparisons on stretches of the recording.
fn ours(recording: &Recording, ratio: f64, budget_s: f64, runs: u32) -> Claims {
    let mut random = Pcg64::seed_from_u64(7);
    let mut claims = Claims::default();
    for seed in 1..=u64::from(runs) {
        let design = design(seed, budget_s);
        let mut fake = Fake::new(&design, &[1.0, ratio, 1.0, ratio], Noise::quiet(), seed);
        fake.recorded = Some(recording.stretch(&mut random, 2.0 * budget_s));
        let run = compare(&design, &mut fake, &mut |_| ());
        claims.trials += run.trials.len() as u64;
        let Some(analysis) = run.analysis else { continue };
        let effect = analysis.arms[1].effects["wall_s"];
        claims.half_widths.extend(effect.low.zip(effect.high).map(|(low, high)| (high / low).ln() / 2.0));
        let is_claim = matches!(analysis.arms[1].outcome, Outcome::Better { .. } | Outcome::Worse);
        claims.add(is_claim.then_some(effect.ratio), ratio);
    }
    claims
}

/// Runs of one command for half of the budget, then of the other; a claim where Welch's 95 % interval of the difference excludes 0.
fn welch(recording: &Recording, ratio: f64, budget_s: f64, runs: u32) -> Claims {
    let mut random = Pcg64::seed_from_u64(7);
    let mut claims = Claims::default();
    for _ in 0..runs {
        let mut stretch = recording.stretch(&mut random, 2.0 * budget_s);
        let one = timed(&mut stretch, 1.0, budget_s / 2.0);
        let other = timed(&mut stretch, ratio, budget_s / 2.0);
        claims.trials += (one.len() + other.len()) as u64;
        let (of_one, of_other) = (Sample::of(&one), Sample::of(&other));
        let variance = of_one.variance + of_other.variance;
        let degrees = variance.powi(2)
            / (of_one.variance.powi(2) / of_one.degrees + of_other.variance.powi(2) / of_other.degrees);
        let half = student_975(degrees) * variance.sqrt();
        claims.half_widths.push((half / of_one.mean).ln_1p());
        let difference = of_other.mean - of_one.mean;
        claims.add((difference.abs() > half).then_some(of_other.mean / of_one.mean), ratio);
    }
    claims
}

/// Times of runs until the budget is used up.
fn timed(stretch: &mut impl Iterator<Item = f64>, ratio: f64, budget_s: f64) -> Vec<f64> {
    let mut used_s = 0.0;
    let mut times = Vec::new();
    while used_s < budget_s {
        let time_s = stretch.next().expect("the stretch is twice as long as the budget") * ratio;
        used_s += time_s;
        times.push(time_s);
    }
    times
}

struct Sample {
    mean: f64,
    /// The square of the standard error of the mean.
    variance: f64,
    degrees: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Sample {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Sample { mean, variance: squares / (count - 1.0) / count, degrees: count - 1.0 }
    }
}

/// The 97.5 % quantile of Student's distribution, by the first terms of its expansion about the normal one; right to 0.1 % from 10
/// degrees of freedom on.
fn student_975(degrees: f64) -> f64 {
    let z = 1.959_964_f64;
    z + (z.powi(3) + z) / (4.0 * degrees) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees.powi(2))
}

/// At most 10 claims are expected. The seeds are fixed, so the outcome is the same on every machine.
#[test]
fn a_command_compared_with_itself_on_recorded_noise_rarely_shows_a_difference() {
    for name in Recording::NAMES {
        let claims = ours(&Recording::load(name), 1.0, 30.0, 200);
        assert!(claims.wrong <= 12, "{name}: {} of 200", claims.wrong);
    }
}

#[test]
#[ignore = "prints the table of docs/evidence/speed.md; takes some minutes of a release build"]
fn table() {
    println!("| noise | effect | tool | found | false | half width | trials |\n|---|---|---|---|---|---|---|");
    for name in Recording::NAMES {
        let recording = Recording::load(name);
        for effect in [0.0, 0.01, 0.02, 0.05] {
            row(name, effect, "pagelab", ours(&recording, 1.0 + effect, 60.0, 1000));
            row(name, effect, "Welch, one after the other", welch(&recording, 1.0 + effect, 60.0, 1000));
        }
    }
}

fn row(name: &str, effect: f64, tool: &str, mut claims: Claims) {
    let percent = |count: u32| f64::from(count) / 10.0;
    println!(
        "| {name} | {:.0} % | {tool} | {:.1} % | {:.1} % | {:.1} % | {:.0} |",
        effect * 100.0,
        percent(claims.right),
        percent(claims.wrong),
        claims.half_width() * 100.0,
        claims.trials as f64 / 1000.0
    );
}
