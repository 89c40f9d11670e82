//! [`MeasuredBoots`]: boots measured by one design, and whether two designs are the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::boot::Boot;
use crate::comparison::{Comparison, Design, Fragmented, Invocation, Khugepaged};
use crate::stats::median::median;
use crate::stats::{answers, holding};
use crate::trial::TrialRecord;
use policy::size::format_bytes;
use policy::verdict::Verdict;

/// Boots measured by one design, read from one store or file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredBoots {
    /// The design of the comparison.
    pub design: Design,
    /// The measured command.
    pub invocation: Invocation,
    pub boots: Vec<Boot>,
}

/// Why comparisons cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There are no boots to merge.
    #[error(
        "no comparison of arms over boots with a finished trial was found; make one in each boot with `pagelab compare --arm-of-boot`"
    )]
    Nothing,
    #[error("comparisons of one design are expected, but {what} differs: {one} and {other}")]
    Designs {
        /// The property that differs.
        what: &'static str,
        /// Its value in one comparison.
        one: String,
        /// Its value in the other.
        other: String,
    },
}

impl Design {
    /// Whether every arm is a property of a boot. If so, arms are compared over boots.
    pub fn is_over_boots(&self) -> bool {
        !self.arms.is_empty() && self.arms.iter().all(|arm| arm.policy.direct_map().is_some())
    }
}

/// The name, in errors, of a difference in the lists of arms.
const ARMS: &str = "the list of arms";

/// Name of a property of a design, and a function that describes it.
type Described<'a> = (&'static str, &'a dyn Fn(&MeasuredBoots) -> String);

/// Whether two parts measure the same thing under the same arms. A part with a single arm matches any list of arms. A part whose
/// arms are a subset of the other's matches too, if both have the same baseline. The error names the property that differs.
pub fn same_design(one: &MeasuredBoots, other: &MeasuredBoots) -> Result<(), MergeError> {
    let labels = |part: &MeasuredBoots| {
        let arms = part.design.arms.iter().map(|arm| format!("{} ({})", arm.label, arm.policy));
        format!("{}, baseline {}", arms.collect::<Vec<_>>().join(", "), part.design.baseline)
    };
    let metrics = |part: &MeasuredBoots| {
        let names: Vec<&str> = part.design.metrics.iter().map(|metric| metric.name.as_str()).collect();
        format!("{}, primary {}", names.join(" "), part.design.primary)
    };
    let levels =
        |part: &MeasuredBoots| format!("band {}, confidence {}", part.design.band_ratio, part.design.confidence);
    let proofs = |part: &MeasuredBoots| {
        if part.design.prove_all {
            "all of it, with --prove-all".to_owned()
        } else {
            "for a share of the time, without --prove-all".to_owned()
        }
    };
    let prepare = |part: &MeasuredBoots| match &part.invocation.prepare {
        Some(words) => words.join(" "),
        None => "nothing".to_owned(),
    };
    let khugepaged = |part: &MeasuredBoots| match part.design.khugepaged {
        Khugepaged::AsIs => "as it is".to_owned(),
        Khugepaged::Off => "asleep, with --khugepaged off".to_owned(),
    };
    let fragmented = |part: &MeasuredBoots| match part.design.fragmented {
        Some(Fragmented { percent, block }) => format!("{percent} % of it in blocks below {block}"),
        None => "as it is".to_owned(),
    };
    let session = |part: &MeasuredBoots| match &part.design.own_session {
        Some(own) => own.describe(),
        None => "the default one, without --own-session".to_owned(),
    };
    let parts: [Described; 9] = [
        ("the command", &MeasuredBoots::command),
        ("what is run before each trial (--prepare)", &prepare),
        (ARMS, &labels),
        ("the list of metrics", &metrics),
        ("what counts as a difference", &levels),
        ("whether memory is inspected before it is given back", &proofs),
        ("what khugepaged does meanwhile", &khugepaged),
        ("how free memory is fragmented", &fragmented),
        ("the session of the command", &session),
    ];
    let match_arms = |what: &str| what == ARMS && (is_subset(one, other) || is_subset(other, one));
    match parts.into_iter().find(|(what, part)| part(one) != part(other) && !match_arms(what)) {
        Some((what, part)) => Err(MergeError::Designs { what, one: part(one), other: part(other) }),
        None => Ok(()),
    }
}

/// Whether all arms of one part are arms of the other, against the same baseline. A part with a single arm is a subset of any
/// other part.
fn is_subset(one: &MeasuredBoots, other: &MeasuredBoots) -> bool {
    let baseline = |part: &MeasuredBoots| part.design.arms.get(part.design.baseline).cloned();
    let all = one.design.arms.iter().all(|arm| other.design.arms.contains(arm));
    has_single_arm(one) || (all && baseline(one) == baseline(other))
}

/// Whether a part measured a single arm.
pub(super) fn has_single_arm(part: &MeasuredBoots) -> bool {
    part.design.arms.len() == 1
}

impl MeasuredBoots {
    /// The boots of one comparison; `None` if none of its trials counts.
    pub fn of(comparison: &Comparison) -> Option<MeasuredBoots> {
        let boots = boots_of(comparison);
        let (design, invocation) = (comparison.design.clone(), comparison.invocation.clone());
        (!boots.is_empty()).then_some(MeasuredBoots { design, invocation, boots })
    }

    /// The measured command line. With a server, the command line of its client follows.
    pub fn command(&self) -> String {
        let client = self.invocation.client.iter().flatten();
        self.invocation.command.iter().chain(client).cloned().collect::<Vec<_>>().join(" ")
    }
}

/// The part with the most arms; of several, the first. Its baseline is used for all parts.
pub fn part_with_most_arms(parts: &[MeasuredBoots]) -> Option<&MeasuredBoots> {
    parts.iter().rev().max_by_key(|part| part.design.arms.len())
}

/// The trials that count: not of block 0, and not rejected.
fn counted(comparison: &Comparison) -> impl Iterator<Item = &TrialRecord> {
    let arms = comparison.design.arms.len();
    answers::accepted(&comparison.trials).filter(move |record| record.trial.block > 0 && record.trial.arm < arms)
}

/// The host of a comparison, with its memory size: boots with different memory (`mem=`) are not compared with each other.
fn host(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    format!("{}, {}", machine.host_name(), format_bytes(machine.rounded_memory_bytes()))
}

/// One boot per arm with a trial that counts.
fn boots_of(comparison: &Comparison) -> Vec<Boot> {
    let machine = &comparison.machine;
    let of_arm = |arm: usize| {
        let trials: Vec<&TrialRecord> = counted(comparison).filter(|record| record.trial.arm == arm).collect();
        let first = trials.first()?;
        let answering = trials.iter().find(|record| record.answer.too_slow).unwrap_or(first);
        let states = trials.iter().flat_map(|record| [&record.state_before, &record.state_after]);
        Some(Boot {
            host: host(comparison),
            boot_id: machine.boot_id.clone(),
            arm,
            started_unix_s: comparison.started_unix_s.saturating_add(first.started_s.max(0.0) as i64),
            kernel: machine.kernel.clone(),
            kernel_command_line: machine.kernel_command_line.clone(),
            demoted_to: states.filter_map(|state| state.demoted_to).min(),
            direct_map_ratios: ratios(&first.state_before.direct_map_bytes),
            trials: trials.len() as u32,
            medians: medians_of(trials.iter().copied(), &comparison.design),
            holding: holding(trials.iter().map(|record| &record.verdict).collect::<Vec<&Verdict>>()),
            answer: answering.answer.clone(),
        })
    };
    (0..comparison.design.arms.len()).filter_map(of_arm).collect()
}

/// Bytes as shares of the total.
fn ratios(bytes: &BTreeMap<String, u64>) -> BTreeMap<String, f64> {
    let all: u64 = bytes.values().sum();
    bytes.iter().map(|(leaf, bytes)| (leaf.clone(), *bytes as f64 / all.max(1) as f64)).collect()
}

fn medians_of<'a>(trials: impl Iterator<Item = &'a TrialRecord> + Clone, design: &Design) -> BTreeMap<String, f64> {
    let of = |name: &String| {
        let mut values: Vec<f64> = trials.clone().filter_map(|record| record.value(name)).collect();
        Some((name.clone(), median(&mut values)?))
    };
    design.metrics.iter().filter_map(|metric| of(&metric.name)).collect()
}
