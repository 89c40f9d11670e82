//! Which arms run in the next block, and whether any arm needs another block.
//!
//! Both depend only on the trials so far, so an interrupted comparison resumes as it would have continued without the interruption.

use std::collections::BTreeSet;

use super::analysis::analyse;
use super::outcome::{half_width, is_precise};
use crate::comparison::Design;
use crate::plan;
use crate::result::{Analysis, Effect, Outcome};
use crate::role::Role;
use crate::trial::TrialRecord;
use policy::Admission;

/// An arm with rivals may stop before it is precise if its half width is at most this share of its change. For the outcome to
/// change, its estimate would have to move by four half widths, which are some eight standard errors. No number of interim
/// analyses makes that likely.
const MAX_CERTAIN_HALF_WIDTH: f64 = 0.25;

/// Once the control arms have intervals, they only run in blocks whose number is a multiple of this. Their intervals are then at
/// most twice as wide as the intervals of other arms.
const CONTROLS_EVERY: u32 = 4;

/// Whether each arm has to run in `block`, judging by the trials of earlier blocks.
pub(crate) fn needed(design: &Design, trials: &[TrialRecord], admissions: &[Admission], block: u32) -> Vec<bool> {
    let earlier = trials.iter().position(|record| record.trial.block >= block).unwrap_or(trials.len());
    let earlier = &trials[..earlier];
    let analysis = analyse(design, earlier, admissions);
    let enough =
        analysis.as_ref().filter(|analysis| analysis.blocks >= plan::min_blocks_to_stop(design, compared(analysis)));
    let needs =
        |arm: usize| enough.is_none_or(|analysis| arm == design.baseline || !is_finished(design, analysis, arm));
    let needs_controls = block.is_multiple_of(CONTROLS_EVERY)
        || control_blocks(design, earlier) < plan::interval_blocks(design)
        || analysis
            .as_ref()
            .is_some_and(|analysis| analysis.arms.iter().any(|arm| arm.outcome == Outcome::WithinTracerCost));
    let is_needed = |arm: usize| match design.arms[arm].role {
        Role::Policy => needs(arm),
        Role::Frames { of } | Role::Share { of, .. } => needs(of),
        Role::Bare => needs_controls,
        Role::Sham { of, .. } => needs_controls && needs(of),
    };
    (0..design.arms.len()).map(is_needed).collect()
}

/// The arms that need more blocks: they lack the precision that the design requires, and their outcome is not certain.
pub fn unsettled<'a>(design: &'a Design, analysis: &'a Analysis) -> impl Iterator<Item = usize> + 'a {
    let is_settled = |arm: &usize| is_precise_enough(design, analysis, *arm) || is_finished(design, analysis, *arm);
    (0..analysis.arms.len()).filter(move |arm| !is_settled(arm))
}

/// The number of arms that are compared with the baseline.
fn compared(analysis: &Analysis) -> usize {
    analysis.arms.iter().filter(|arm| arm.effects.contains_key(&analysis.primary)).count()
}

/// The number of blocks that count and have control arms.
fn control_blocks(design: &Design, trials: &[TrialRecord]) -> u32 {
    let is_control = |arm: usize| matches!(design.arms[arm].role, Role::Bare | Role::Sham { .. });
    let controls = trials.iter().filter(|record| is_control(record.trial.arm) && record.rejected.is_empty());
    let blocks: BTreeSet<u32> = controls.map(|record| record.trial.block).filter(|block| *block > 0).collect();
    blocks.len() as u32
}

/// Whether an arm's change has the precision that the design requires, and, if the outcome depends on it, also the cost of the
/// arm's stops.
fn is_precise_enough(design: &Design, analysis: &Analysis, arm: usize) -> bool {
    let arm = &analysis.arms[arm];
    let bound = || arm.tracer_cost.get(&analysis.primary).and_then(|cost| cost.bound);
    arm.effects.get(&analysis.primary).is_none_or(|effect| {
        is_precise(design, effect)
            && (arm.outcome != Outcome::WithinTracerCost || bound().is_none_or(|bound| is_precise(design, &bound)))
    })
}

/// Whether an arm can stop while others continue: its outcome will not change.
fn is_finished(design: &Design, analysis: &Analysis, arm: usize) -> bool {
    let Some(effect) = analysis.arms[arm].effects.get(&analysis.primary) else { return false };
    let is_beaten =
        || analysis.best().iter().any(|best| are_disjoint(effect, &analysis.arms[*best].effects[&analysis.primary]));
    match analysis.arms[arm].outcome {
        Outcome::Equivalent => is_precise(design, effect),
        // A change that is only just significant may be chance. More blocks would correct it.
        Outcome::Worse => is_certain(design, analysis, effect),
        Outcome::Better { best: false } => is_certain(design, analysis, effect) && is_beaten(),
        _ => false,
    }
}

/// Whether an arm with rivals has a change many times larger than its uncertainty. Without rivals, the size of the change is the
/// question, so the arm continues.
fn is_certain(design: &Design, analysis: &Analysis, effect: &Effect) -> bool {
    let policies = design
        .compared()
        .filter(|arm| !design.is_aa(*arm) && analysis.arms[*arm].effects.contains_key(&analysis.primary));
    policies.count() > 1
        && half_width(effect).is_some_and(|half| half <= effect.ratio.ln().abs() * MAX_CERTAIN_HALF_WIDTH)
}

/// Whether two intervals do not overlap.
fn are_disjoint(one: &Effect, other: &Effect) -> bool {
    let above = |one: &Effect, other: &Effect| one.low.zip(other.high).is_some_and(|(low, high)| low > high);
    above(one, other) || above(other, one)
}
