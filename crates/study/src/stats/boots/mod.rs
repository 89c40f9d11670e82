//! Arms compared over boots: one observation per boot and arm, compared within hosts.
//!
//! A boot has one direct map, so arms cannot be interleaved within it: boots take the place of blocks. Trials of one boot share
//! everything that is decided at boot (where memory is, which leaves were split), so more trials say nothing about other boots.
//! Their median is one observation.

mod boot;
mod limits;
mod part;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use boot::Boot;
pub use limits::{Limitation, boots as count_of_boots, sentences};
pub use part::{MeasuredBoots, MergeError, part_with_most_arms, same_design};

use super::answers::Deviation;
use super::log_error::LogError;
use super::median::median;
use super::{outcome, rank_sum};
use crate::comparison::{Design, Invocation};
use crate::result::{Effect, Outcome};
use crate::trial::Arm;
use boot::{of_arm, strata};
use part::has_single_arm;

/// The merged boots of one design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// The design; its seed and block counts are those of the first comparison.
    pub design: Design,
    /// The measured command.
    pub invocation: Invocation,
    /// All boots and arms in chronological order.
    pub boots: Vec<Boot>,
    /// One result per arm of the design.
    pub arms: Vec<BootArm>,
    /// What cannot be concluded, and why.
    pub limits: Vec<Limitation>,
}

/// The result for one arm over all boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootArm {
    /// Number of boots that measured the arm.
    pub boots: u32,
    /// Number of hosts that measured the arm.
    pub hosts: u32,
    /// Median over the boots' medians, for each metric.
    pub medians: BTreeMap<String, f64>,
    /// The change of each metric against the baseline, within hosts; `blocks` counts the arm's boots on hosts that have boots
    /// of both the arm and the baseline. Without an interval if there are too few boots.
    pub effects: BTreeMap<String, Effect>,
    /// Whether the arm's policy was in force in each of its boots.
    pub is_held: bool,
    /// The conclusion about the boots that request the arm's policy.
    pub outcome: Outcome,
}

impl Merged {
    /// The measuring error of an arm's change of the primary metric against the baseline.
    pub fn error(&self, arm: usize) -> Option<LogError> {
        LogError::of_strata(&strata(&self.boots, arm, self.design.baseline, &self.design.primary))
    }
}

/// Merges parts of one design. If a boot and arm occur several times, the part with the most trials is used: all trials of an
/// arm in a boot are one observation, and pooling runs of different times would not improve it.
pub fn merge(parts: &[MeasuredBoots]) -> Result<Merged, MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    let largest = part_with_most_arms(parts).unwrap_or(first);
    parts.iter().try_for_each(|part| same_design(largest, part))?;
    let baseline = if has_single_arm(largest) { 0 } else { largest.design.baseline };
    let design = Design { arms: all_arms(largest, parts), baseline, ..largest.design.clone() };
    let boots: Vec<Boot> = parts.iter().flat_map(|part| renumbered(part, &design)).collect();
    let boots = distinct(boots.iter());
    if boots.is_empty() {
        return Err(MergeError::Nothing);
    }
    let limits = limits::limits(&design, &boots);
    let arms = arms(&design, &boots);
    Ok(Merged { design, invocation: first.invocation.clone(), boots, arms, limits })
}

/// The arms of the part with the most arms, followed by arms that only other parts have. If each part has only one arm, the arm
/// with the largest leaf comes first and is the baseline.
fn all_arms(largest: &MeasuredBoots, parts: &[MeasuredBoots]) -> Vec<Arm> {
    let mut arms = largest.design.arms.clone();
    for arm in parts.iter().flat_map(|part| &part.design.arms) {
        if !arms.contains(arm) {
            arms.push(arm.clone());
        }
    }
    if has_single_arm(largest) {
        arms.sort_by_key(|arm| std::cmp::Reverse(arm.policy.direct_map()));
    }
    arms
}

/// A part's boots, renumbered with the arm indices of a design.
fn renumbered<'a>(part: &'a MeasuredBoots, design: &'a Design) -> impl Iterator<Item = Boot> + 'a {
    part.boots.iter().filter_map(|boot| {
        let own = part.design.arms.get(boot.arm)?;
        let arm = design.arms.iter().position(|arm| arm == own)?;
        Some(Boot { arm, ..boot.clone() })
    })
}

fn distinct<'a>(boots: impl Iterator<Item = &'a Boot>) -> Vec<Boot> {
    let mut kept: BTreeMap<(&str, &str, usize), &Boot> = BTreeMap::new();
    for boot in boots {
        let known = kept.entry((&boot.host, &boot.boot_id, boot.arm)).or_insert(boot);
        if boot.trials > known.trials {
            *known = boot;
        }
    }
    let mut boots: Vec<Boot> = kept.into_values().cloned().collect();
    boots.sort_by_key(|boot| (boot.started_unix_s, boot.arm));
    boots
}

fn arms(design: &Design, boots: &[Boot]) -> Vec<BootArm> {
    let compared =
        (0..design.arms.len()).filter(|arm| *arm != design.baseline && of_arm(boots, *arm).next().is_some()).count();
    let mut arms: Vec<BootArm> = (0..design.arms.len()).map(|arm| boot_arm(design, boots, arm, compared)).collect();
    mark_best(design, boots, &mut arms);
    arms
}

fn boot_arm(design: &Design, boots: &[Boot], arm: usize, compared: usize) -> BootArm {
    let effect = |name: &String| Some((name.clone(), effect(design, boots, arm, name, compared)?));
    let effects: BTreeMap<String, Effect> = if arm == design.baseline {
        BTreeMap::new()
    } else {
        design.metrics.iter().filter_map(|metric| effect(&metric.name)).collect()
    };
    let hosts: BTreeSet<&str> = of_arm(boots, arm).map(|boot| boot.host.as_str()).collect();
    let median = |name: &String| {
        let mut values: Vec<f64> = of_arm(boots, arm).filter_map(|boot| boot.medians.get(name).copied()).collect();
        Some((name.clone(), median(&mut values)?))
    };
    BootArm {
        boots: of_arm(boots, arm).count() as u32,
        hosts: hosts.len() as u32,
        medians: design.metrics.iter().filter_map(|metric| median(&metric.name)).collect(),
        is_held: of_arm(boots, arm).all(Boot::is_held),
        outcome: conclude(design, boots, arm, effects.get(&design.primary), compared),
        effects,
    }
}

/// The smallest number of boots per arm, on one host, at which a difference between this many arms can be significant.
pub fn boots_needed(arms: usize) -> u32 {
    let design = Design::new(Vec::new(), 0, 0);
    limits::needed(&design, arms.saturating_sub(1).max(1))
}

/// The change against the baseline. One boot of either arm gives a ratio, but no interval.
fn effect(design: &Design, boots: &[Boot], arm: usize, metric: &str, compared: usize) -> Option<Effect> {
    let strata = strata(boots, arm, design.baseline, metric);
    let ones: usize = strata.iter().map(|stratum| stratum.one.len()).sum();
    let others: usize = strata.iter().map(|stratum| stratum.other.len()).sum();
    let centre = rank_sum::test(&strata, design.level())?;
    let interval = centre.interval.filter(|_| ones > 1 && others > 1);
    Some(Effect {
        blocks: ones as u32,
        ratio: centre.estimate.exp(),
        low: interval.map(|(low, _)| low.exp()),
        high: interval.map(|(_, high)| high.exp()),
        // Bonferroni's correction: there are too few boots for resampling.
        p_adjusted: (ones > 1 && others > 1).then(|| (centre.p * compared.max(1) as f64).min(1.0)),
    })
}

fn conclude(design: &Design, boots: &[Boot], arm: usize, effect: Option<&Effect>, compared: usize) -> Outcome {
    if of_arm(boots, arm).next().is_none() {
        return Outcome::NotMeasured;
    }
    if arm == design.baseline {
        return Outcome::Baseline;
    }
    if let Some(deviation) = deviation(design, boots, arm) {
        return deviation.outcome();
    }
    match effect {
        Some(effect) if effect.p_adjusted.is_some() => outcome::conclude(design, effect, compared),
        _ => Outcome::Undecided { blocks_needed: None },
    }
}

fn deviation(design: &Design, boots: &[Boot], arm: usize) -> Option<Deviation> {
    let expected = &of_arm(boots, design.baseline).find(|boot| !boot.answer.too_slow)?.answer;
    let other = of_arm(boots, arm).find(|boot| !boot.answer.agrees_with(expected))?;
    let boot = &other.boot_id;
    Some(if other.answer.too_slow {
        Deviation::TooSlow(format!("took longer than a trial may (--trial-time) in boot {boot}"))
    } else {
        Deviation::Other(format!("its answer in boot {boot} differs from the baseline's"))
    })
}

/// Marks the best arms. A better arm is best if no other measured arm is shown to beat it.
fn mark_best(design: &Design, boots: &[Boot], arms: &mut [BootArm]) {
    let is_better = |arm: &BootArm| matches!(arm.outcome, Outcome::Better { .. });
    let running: Vec<usize> = (0..arms.len()).filter(|arm| arms[*arm].boots > 0).collect();
    let beats = |one: usize, other: usize| {
        let centre = rank_sum::test(&strata(boots, one, other, &design.primary), design.level());
        let level = design.level() / (running.len().max(2) - 1) as f64;
        centre.is_some_and(|centre| centre.p <= level && outcome::improves(design, centre.estimate.exp()))
    };
    for arm in running.iter().copied().filter(|arm| is_better(&arms[*arm])).collect::<Vec<_>>() {
        let is_beaten = running.iter().any(|other| *other != arm && beats(*other, arm));
        arms[arm].outcome = Outcome::Better { best: !is_beaten };
    }
}
