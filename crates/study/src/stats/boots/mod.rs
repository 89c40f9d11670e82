//! Arms over boots: one observation for each boot and arm, compared within hosts.
//!
//! A boot has one direct map, so its arms cannot be interleaved: what blocks are elsewhere, boots are here.
//! Trials of one boot share everything that a boot decides (where memory lies, what was split), so more of
//! them say nothing about other boots: their median is one observation.

mod limits;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use limits::{Limit, boots as count_of_boots, sentences};

use super::answers::{self, Deviation};
use super::rank_sum::{self, Stratum};
use super::{Effect, Outcome, holding, median, outcome};
use crate::comparison::{Comparison, Design, Invocation, Khugepaged};
use crate::size::{PageSize, format_bytes};
use crate::trial::{Answer, Arm, TrialRecord};
use crate::verdict::{Holding, Verdict};

/// What one boot says about one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// The host: its id, or where a result has none, its processor and memory.
    pub host: String,
    /// The boot.
    pub boot_id: String,
    /// Index of the arm in the design.
    pub arm: usize,
    /// Seconds since 1970 at the first of its trials.
    pub started_unix_s: i64,
    /// The kernel's release and version.
    pub kernel: String,
    /// The kernel's command line.
    pub kernel_command_line: String,
    /// The smallest leaf that pagelab demoted the direct map to before or while it was measured.
    pub demoted_to: Option<PageSize>,
    /// Trials that count.
    pub trials: u32,
    /// Medians of each metric over these trials.
    pub medians: BTreeMap<String, f64>,
    /// Whether the policy held.
    pub holding: Option<Holding>,
    /// The answer of its first trial, or of the one that took too long.
    pub answer: Answer,
}

/// Boots of one design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// The design; seed and numbers of blocks are those of the first comparison.
    pub design: Design,
    /// What was measured.
    pub invocation: Invocation,
    /// Every boot and arm, in the order of time.
    pub boots: Vec<Boot>,
    /// One for each arm of the design.
    pub arms: Vec<BootArm>,
    /// What cannot be concluded, and why.
    pub limits: Vec<Limit>,
}

/// What the boots say about one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootArm {
    /// Boots that have it.
    pub boots: u32,
    /// Hosts that have it.
    pub hosts: u32,
    /// Median over the boots' medians of each metric.
    pub medians: BTreeMap<String, f64>,
    /// The change of each metric against the baseline, within hosts; `blocks` counts the arm's boots on
    /// hosts that have both. Without interval where boots are too few for one.
    pub effects: BTreeMap<String, Effect>,
    /// What follows.
    pub outcome: Outcome,
}

/// Boots that were measured by one design: what is read from one store or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The design.
    pub design: Design,
    /// What was measured.
    pub invocation: Invocation,
    /// Its boots.
    pub boots: Vec<Boot>,
}

/// Why comparisons cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is nothing to merge.
    #[error(
        "no comparison of arms over boots with a finished trial was found; make one in each boot with `pagelab compare --arm-of-boot`"
    )]
    Nothing,
    /// Two comparisons are not of one design.
    #[error("comparisons of one design are expected, but {what} differs: {one} and {other}")]
    Designs {
        /// What differs.
        what: &'static str,
        /// In the one.
        one: String,
        /// In the other.
        other: String,
    },
}

impl Design {
    /// Whether every arm is one that a boot has or has not: then arms are compared over boots.
    pub fn is_over_boots(&self) -> bool {
        !self.arms.is_empty() && self.arms.iter().all(|arm| arm.policy.direct_map().is_some())
    }
}

/// What differs between designs with other arms.
const ARMS: &str = "the list of arms";

/// A part of a design by name, and how to put it in words.
type Described<'a> = (&'static str, &'a dyn Fn(&Part) -> String);

/// Whether two parts measure the same thing under the same arms. A part that was asked for one arm alone says nothing of
/// the others: it joins any list of arms.
///
/// # Errors
/// What differs.
pub fn same_design(one: &Part, other: &Part) -> Result<(), MergeError> {
    let labels = |part: &Part| {
        let arms = part.design.arms.iter().map(|arm| format!("{} ({})", arm.label, arm.policy));
        format!("{}, baseline {}", arms.collect::<Vec<_>>().join(", "), part.design.baseline)
    };
    let metrics = |part: &Part| {
        let names: Vec<&str> = part.design.metrics.iter().map(|metric| metric.name.as_str()).collect();
        format!("{}, primary {}", names.join(" "), part.design.primary)
    };
    let levels = |part: &Part| format!("band {}, confidence {}", part.design.band_ratio, part.design.confidence);
    let proofs = |part: &Part| match part.design.prove_all {
        true => "all of it, with --prove-all".to_owned(),
        false => "for a share of the time, without --prove-all".to_owned(),
    };
    let prepare = |part: &Part| match &part.invocation.prepare {
        Some(words) => words.join(" "),
        None => "nothing".to_owned(),
    };
    let khugepaged = |part: &Part| match part.design.khugepaged {
        Khugepaged::AsIs => "as it is".to_owned(),
        Khugepaged::Off => "held still, with --khugepaged off".to_owned(),
    };
    let parts: [Described; 7] = [
        ("the command", &Part::command),
        ("what is run before each trial (--prepare)", &prepare),
        (ARMS, &labels),
        ("the list of metrics", &metrics),
        ("what counts as a difference", &levels),
        ("whether memory is looked at before it goes", &proofs),
        ("what khugepaged does meanwhile", &khugepaged),
    ];
    let joins = |what: &str| what == ARMS && (is_alone(one) || is_alone(other));
    match parts.into_iter().find(|(what, part)| part(one) != part(other) && !joins(what)) {
        Some((what, part)) => Err(MergeError::Designs { what, one: part(one), other: part(other) }),
        None => Ok(()),
    }
}

/// Whether it was asked for one arm alone.
fn is_alone(part: &Part) -> bool {
    part.design.arms.len() == 1
}

impl Part {
    /// The boots of one comparison; `None` where none of its trials counts.
    pub fn of(comparison: &Comparison) -> Option<Part> {
        let boots = boots_of(comparison);
        let (design, invocation) = (comparison.design.clone(), comparison.invocation.clone());
        (!boots.is_empty()).then_some(Part { design, invocation, boots })
    }

    /// The measured command line; with a server, that of its client behind it.
    pub fn command(&self) -> String {
        let client = self.invocation.client.iter().flatten();
        self.invocation.command.iter().chain(client).cloned().collect::<Vec<_>>().join(" ")
    }
}

/// Joins parts of one design. Where a boot and arm come several times, the one with most trials counts: they
/// are one observation, and pooling runs of different times would not make it a better one.
///
/// # Errors
/// [`MergeError`].
pub fn merge(parts: &[Part]) -> Result<Merged, MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    let fullest = fullest(parts).unwrap_or(first);
    parts.iter().try_for_each(|part| same_design(fullest, part))?;
    let baseline = if is_alone(fullest) { 0 } else { fullest.design.baseline };
    let design = Design { arms: all_arms(fullest, parts), baseline, ..fullest.design.clone() };
    let boots: Vec<Boot> = parts.iter().flat_map(|part| renumbered(part, &design)).collect();
    let boots = distinct(boots.iter());
    if boots.is_empty() {
        return Err(MergeError::Nothing);
    }
    let limits = limits::limits(&design, &boots);
    let arms = arms(&design, &boots);
    Ok(Merged { design, invocation: first.invocation.clone(), boots, arms, limits })
}

/// The part with most arms, the first of several: whose baseline is that of them all.
pub fn fullest(parts: &[Part]) -> Option<&Part> {
    parts.iter().rev().max_by_key(|part| part.design.arms.len())
}

/// The arms of the fullest part, and those that others have alone. Where each has one alone the largest leaf comes first, and
/// is the baseline.
fn all_arms(fullest: &Part, parts: &[Part]) -> Vec<Arm> {
    let mut arms = fullest.design.arms.clone();
    for arm in parts.iter().flat_map(|part| &part.design.arms) {
        if !arms.contains(arm) {
            arms.push(arm.clone());
        }
    }
    if is_alone(fullest) {
        arms.sort_by_key(|arm| std::cmp::Reverse(arm.policy.direct_map()));
    }
    arms
}

/// A part's boots, with the numbers that their arms have in a design.
fn renumbered<'a>(part: &'a Part, design: &'a Design) -> impl Iterator<Item = Boot> + 'a {
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

/// The trials that count: not of block 0, and not rejected.
fn counted(comparison: &Comparison) -> impl Iterator<Item = &TrialRecord> {
    let arms = comparison.design.arms.len();
    answers::accepted(&comparison.trials).filter(move |record| record.trial.block > 0 && record.trial.arm < arms)
}

/// The host of a comparison.
fn host(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let gigabytes = machine.memory_bytes.div_ceil(1 << 30) << 30;
    let described = || format!("{}, {} on line, {}", machine.cpu_model, machine.cpus, format_bytes(gigabytes));
    machine.host_id.clone().unwrap_or_else(described)
}

/// One for each arm that has a trial that counts.
fn boots_of(comparison: &Comparison) -> Vec<Boot> {
    let machine = &comparison.machine;
    let of_arm = |arm: usize| {
        let trials: Vec<&TrialRecord> = counted(comparison).filter(|record| record.trial.arm == arm).collect();
        let first = trials.first()?;
        let telling = trials.iter().find(|record| record.answer.too_slow).unwrap_or(first);
        let states = trials.iter().flat_map(|record| [&record.state_before, &record.state_after]);
        Some(Boot {
            host: host(comparison),
            boot_id: machine.boot_id.clone(),
            arm,
            started_unix_s: comparison.started_unix_s.saturating_add(first.started_s.max(0.0) as i64),
            kernel: machine.kernel.clone(),
            kernel_command_line: machine.kernel_command_line.clone(),
            demoted_to: states.filter_map(|state| state.demoted_to).min(),
            trials: trials.len() as u32,
            medians: medians_of(trials.iter().copied(), &comparison.design),
            holding: holding(trials.iter().map(|record| &record.verdict).collect::<Vec<&Verdict>>()),
            answer: telling.answer.clone(),
        })
    };
    (0..comparison.design.arms.len()).filter_map(of_arm).collect()
}

fn medians_of<'a>(trials: impl Iterator<Item = &'a TrialRecord> + Clone, design: &Design) -> BTreeMap<String, f64> {
    let of = |name: &String| {
        let mut values: Vec<f64> = trials.clone().filter_map(|record| record.value(name)).collect();
        Some((name.clone(), median(&mut values)?))
    };
    design.metrics.iter().filter_map(|metric| of(&metric.name)).collect()
}

fn arms(design: &Design, boots: &[Boot]) -> Vec<BootArm> {
    let compared =
        (0..design.arms.len()).filter(|arm| *arm != design.baseline && of_arm(boots, *arm).next().is_some()).count();
    let mut arms: Vec<BootArm> = (0..design.arms.len()).map(|arm| boot_arm(design, boots, arm, compared)).collect();
    mark_best(design, boots, &mut arms);
    arms
}

fn of_arm(boots: &[Boot], arm: usize) -> impl Iterator<Item = &Boot> {
    boots.iter().filter(move |boot| boot.arm == arm)
}

fn boot_arm(design: &Design, boots: &[Boot], arm: usize, compared: usize) -> BootArm {
    let effect = |name: &String| Some((name.clone(), effect(design, boots, arm, name, compared)?));
    let effects: BTreeMap<String, Effect> = match arm == design.baseline {
        true => BTreeMap::new(),
        false => design.metrics.iter().filter_map(|metric| effect(&metric.name)).collect(),
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
        outcome: conclude(design, boots, arm, effects.get(&design.primary), compared),
        effects,
    }
}

/// Logarithms of a metric, by host. Values that have none leave their boot out.
fn strata(boots: &[Boot], arm: usize, other: usize, metric: &str) -> Vec<Stratum> {
    let mut hosts: BTreeMap<&str, Stratum> = BTreeMap::new();
    for boot in boots {
        let value = boot.medians.get(metric).filter(|value| value.is_finite() && **value > 0.0);
        let Some(log) = value.map(|value| value.ln()) else { continue };
        let stratum = hosts.entry(&boot.host).or_default();
        if boot.arm == arm {
            stratum.one.push(log);
        } else if boot.arm == other {
            stratum.other.push(log);
        }
    }
    hosts.into_values().filter(|stratum| !stratum.one.is_empty() && !stratum.other.is_empty()).collect()
}

/// The change against the baseline. One boot of either arm gives a ratio and nothing to judge it by.
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
        // Bonferroni: boots are too few for a resampling.
        p_adjusted: (ones > 1 && others > 1).then(|| (centre.p * compared.max(1) as f64).min(1.0)),
    })
}

fn conclude(design: &Design, boots: &[Boot], arm: usize, effect: Option<&Effect>, compared: usize) -> Outcome {
    let holding_of = |arm: usize| of_arm(boots, arm).all(|boot| boot.holding == Some(Holding::Held));
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
        _ if !holding_of(arm) || !holding_of(design.baseline) => Outcome::NotHeld,
        Some(effect) if effect.p_adjusted.is_some() => outcome::conclude(design, effect, compared),
        _ => Outcome::Undecided { blocks_needed: None },
    }
}

fn deviation(design: &Design, boots: &[Boot], arm: usize) -> Option<Deviation> {
    let expected = &of_arm(boots, design.baseline).find(|boot| !boot.answer.too_slow)?.answer;
    let other = of_arm(boots, arm).find(|boot| boot.answer != *expected)?;
    let boot = &other.boot_id;
    Some(match other.answer.too_slow {
        true => Deviation::TooSlow(format!("took longer than a trial may (--trial-time) in boot {boot}")),
        false => Deviation::Other(format!("its answer in boot {boot} is another one than the baseline's")),
    })
}

/// An arm is best when the test between the two rejects against every other measured arm, or none beats it.
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
