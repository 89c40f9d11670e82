//! [`analyse`]: the analysis of a comparison, which applies the other modules of `stats` in order.

use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::holding::holding;
use super::max_t::{self, Flips};
use super::median::median;
use super::signed_rank::{Centre, SignedRank};
use super::tracer_cost::{self, StandIns};
use super::{best, curve, gain_share, outcome, parts, warnings};
use crate::comparison::Design;
use crate::metric::names;
use crate::plan;
use crate::result::{Analysis, ArmAnalysis, Effect, Outcome};
use crate::trial::TrialRecord;
use policy::Admission;
use policy::verdict::Holding;

/// The statistics of the trials so far; `None` before the first block that counts is complete, or if [`plan::check`]
/// rejects the design.
///
/// The primary metric is the design's, unless that is wall time and the command's first process ends while others
/// continue: then it is CPU time, with a warning.
///
/// The same design and trials give the same analysis on every machine, up to rounding of logarithms.
pub fn analyse(design: &Design, trials: &[TrialRecord], admissions: &[Admission]) -> Option<Analysis> {
    plan::check(design).ok()?;
    let blocks = Blocks::new(design, trials, admissions);
    if blocks.numbers.is_empty() {
        return None;
    }
    let is_wall_requested = design.primary == names::WALL_S;
    let design = &Design { primary: warnings::deciding_metric(design, &blocks), ..design.clone() };
    let mut signed_rank = SignedRank::default();
    let effects = effects(design, &blocks, admissions, &mut signed_rank);
    let compared = effects.iter().filter(|effects| effects.contains_key(&design.primary)).count();
    let stand_ins = StandIns::new(design, &blocks);
    let mut outcome = |arm: usize| {
        let outcome = outcome(design, &blocks, admissions, arm, &effects[arm], compared);
        check_tracer_cost(design, &stand_ins, outcome, arm, effects[arm].get(&design.primary), &mut signed_rank)
    };
    let outcomes: Vec<Outcome> = (0..design.arms.len()).map(&mut outcome).collect();
    let costs: Vec<_> = (0..design.arms.len()).map(|arm| stand_ins.costs(arm, &mut signed_rank)).collect();
    let medians = (0..design.arms.len()).map(|arm| medians(design, &blocks, arm));
    let mut arms: Vec<ArmAnalysis> = medians
        .zip(effects)
        .zip(outcomes)
        .zip(costs)
        .map(|(((medians, effects), outcome), tracer_cost)| ArmAnalysis {
            medians,
            effects,
            outcome,
            tracer_cost,
            tied: Vec::new(),
            gain_share: None,
            parts: None,
            curve: None,
        })
        .collect();
    if is_held(&blocks, design.baseline) {
        best::mark(design, &blocks, &stand_ins, &mut arms, &mut signed_rank);
        gain_share::mark(design, &blocks, &mut arms, &mut signed_rank);
    }
    parts::mark(design, &blocks, &mut arms, &mut signed_rank);
    curve::mark(design, &blocks, &mut arms, &mut signed_rank);
    let warnings = warnings::warnings(design, trials, &blocks, &arms, is_wall_requested);
    let blocks = blocks.numbers.len() as u32;
    Some(Analysis { primary: design.primary.clone(), baseline: design.baseline, blocks, arms, warnings })
}

/// The effects of every arm. An arm with a wrong answer has none: the time to compute something else is not a change.
fn effects(
    design: &Design,
    blocks: &Blocks<'_>,
    admissions: &[Admission],
    signed_rank: &mut SignedRank,
) -> Vec<BTreeMap<String, Effect>> {
    let has_effects = |arm: &usize| {
        *arm != design.baseline
            && design.is_compared(*arm)
            && blocks.deviations[*arm].is_none()
            && matches!(admissions.get(*arm), Some(Admission::Admitted { .. }))
    };
    let arms: Vec<usize> = (0..design.arms.len()).filter(has_effects).collect();
    let mut effects = vec![BTreeMap::new(); design.arms.len()];
    let mut flips = None;
    for metric in &design.metrics {
        let family: Vec<(usize, Vec<Option<f64>>)> = arms
            .iter()
            .filter_map(|arm| Some((*arm, blocks.log_ratios(*arm, design.baseline, &metric.name)?)))
            .collect();
        let adjusted = adjusted_p(design, &family, &mut flips);
        for (at, (arm, ratios)) in family.iter().enumerate() {
            let present: Vec<f64> = ratios.iter().flatten().copied().collect();
            if let Some(centre) = signed_rank.cautious_test(&present, design.level()) {
                let adjusted = adjusted.get(at).copied().unwrap_or(0.0);
                effects[*arm].insert(metric.name.clone(), effect(present.len(), &centre, adjusted));
            }
        }
    }
    effects
}

/// Corrected p values of one metric's arms; empty for a single arm, which needs no correction.
fn adjusted_p(design: &Design, family: &[(usize, Vec<Option<f64>>)], flips: &mut Option<Flips>) -> Vec<f64> {
    if family.len() < 2 {
        return Vec::new();
    }
    let ratios: Vec<&[Option<f64>]> = family.iter().map(|(_, ratios)| ratios.as_slice()).collect();
    max_t::adjusted_p(&ratios, flips.get_or_insert_with(|| Flips::new(ratios[0].len(), design.seed)))
}

/// The effect with its corrected p value, which is never below the exact p value of the single arm, because the interval is
/// derived from that one.
fn effect(blocks: usize, centre: &Centre, adjusted_p: f64) -> Effect {
    Effect { p_adjusted: Some(adjusted_p.max(centre.p)), ..Effect::of(blocks, centre) }
}

/// The outcome, or [`Outcome::WithinTracerCost`] if the tracer's stops alone could cause or hide the change.
fn check_tracer_cost(
    design: &Design,
    stand_ins: &StandIns<'_>,
    outcome: Outcome,
    arm: usize,
    effect: Option<&Effect>,
    signed_rank: &mut SignedRank,
) -> Outcome {
    let claims = matches!(outcome, Outcome::Better { .. } | Outcome::Worse | Outcome::Equivalent);
    let Some(effect) = effect.filter(|_| claims) else { return outcome };
    let Some(bound) = stand_ins.between((arm, design.baseline), &design.primary, signed_rank) else { return outcome };
    let is_undecided = match outcome {
        Outcome::Equivalent => tracer_cost::hides(design, &bound),
        _ => tracer_cost::explains(design, &bound, effect),
    };
    if is_undecided { Outcome::WithinTracerCost } else { outcome }
}

/// The outcome of an arm, for the effect of requesting its policy. The order of trials is random, so the difference of two arms
/// is an effect of the request, whatever share of the memory got the pages.
fn outcome(
    design: &Design,
    blocks: &Blocks<'_>,
    admissions: &[Admission],
    arm: usize,
    effects: &BTreeMap<String, Effect>,
    compared: usize,
) -> Outcome {
    if arm == design.baseline {
        return Outcome::Baseline;
    }
    if !design.is_compared(arm) {
        return Outcome::Control;
    }
    match admissions.get(arm) {
        Some(Admission::Admitted { .. }) => {}
        Some(Admission::Unsupported(_)) => return Outcome::Unsupported,
        None => return Outcome::NotMeasured,
    }
    if let Some(deviation) = &blocks.deviations[arm] {
        return deviation.outcome();
    }
    match effects.get(&design.primary) {
        Some(effect) => outcome::conclude(design, effect, compared),
        None => Outcome::Undecided { blocks_needed: None },
    }
}

fn is_held(blocks: &Blocks<'_>, arm: usize) -> bool {
    let holding = holding(blocks.trials(arm).map(|record| &record.verdict));
    matches!(holding, Some(Holding::Held | Holding::NotAsked))
}

fn medians(design: &Design, blocks: &Blocks<'_>, arm: usize) -> BTreeMap<String, f64> {
    let median = |name: &String| Some((name.clone(), median(&mut blocks.values(arm, name))?));
    design.metrics.iter().filter_map(|metric| median(&metric.name)).collect()
}
