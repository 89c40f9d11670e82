//! The basis of a cell's figures: runs, boots and ranges of observations, and why pages differ from those of the policy.

use std::collections::BTreeMap;

use policy::cause::CauseShare;
use policy::verdict::Holding;

use study::comparison::Comparison;
use study::stats::accepted;
use study::stats::boots::Merged;
use study::stats::{causes, counted_trials, holding};
use study::trial::TrialRecord;

/// The observations behind the figures of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Basis {
    /// Number of runs that count.
    pub runs: u32,
    /// Number of boots if each boot is one observation; 0 if each run is one.
    pub boots: u32,
    /// Minimum and maximum of the observations of each metric.
    pub ranges: BTreeMap<String, (f64, f64)>,
    /// Whether the pages were those of the policy; `None` if nothing is known.
    pub holding: Option<Holding>,
    /// Why the pages were not those of the policy. The cause that concerns the most memory comes first.
    pub causes: Vec<CauseShare>,
}

impl Basis {
    /// The basis of an arm's figures in a comparison.
    pub(super) fn of_arm(comparison: &Comparison, arm: usize) -> Basis {
        let trials = counted_trials(comparison, arm);
        let values = trials.iter().flat_map(|record| &record.observations).map(|one| (one.metric.as_str(), one.value));
        Basis { runs: trials.len() as u32, ranges: ranges(values), ..Basis::default() }.with_verdicts(&trials)
    }

    /// The basis of an arm's figures over boots. Its holding is the holding of the worst boot.
    pub(super) fn of_boots(merged: &Merged, arm: usize) -> Basis {
        let boots = || merged.boots.iter().filter(|boot| boot.arm == arm);
        let values = boots().flat_map(|boot| &boot.medians).map(|(metric, value)| (metric.as_str(), *value));
        let worst = [Holding::NotHeld, Holding::Partly, Holding::Unknown];
        let has = |one: &Holding| boots().any(|boot| boot.holding == Some(*one));
        Basis {
            runs: boots().map(|boot| boot.trials).sum(),
            boots: boots().count() as u32,
            ranges: ranges(values),
            holding: worst.into_iter().find(has).or_else(|| boots().find_map(|boot| boot.holding)),
            causes: Vec::new(),
        }
    }

    /// The same basis, with the causes that these trials found.
    pub(super) fn with_causes(self, trials: &[&TrialRecord]) -> Basis {
        Basis { causes: causes(trials), ..self }
    }

    fn with_verdicts(self, trials: &[&TrialRecord]) -> Basis {
        Basis { holding: holding(trials.iter().map(|record| &record.verdict)), causes: causes(trials), ..self }
    }
}

fn ranges<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<String, (f64, f64)> {
    let mut ranges: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (metric, value) in values {
        match ranges.get_mut(metric) {
            Some((least, most)) => (*least, *most) = (least.min(value), most.max(value)),
            None => {
                ranges.insert(metric.to_owned(), (value, value));
            }
        }
    }
    ranges
}

/// Whether an arm's policy was shown to be in force.
pub(super) fn is_held(trials: &[TrialRecord], arm: usize) -> bool {
    let counts = |record: &&TrialRecord| record.trial.arm == arm && record.trial.block > 0;
    let holding = holding(accepted(trials).filter(counts).map(|record| &record.verdict));
    matches!(holding, None | Some(Holding::Held | Holding::NotAsked))
}

/// The trials of these comparisons that count and ran under the policy.
pub(super) fn trials_under<'a>(comparisons: &[&'a Comparison], policy: &str) -> Vec<&'a TrialRecord> {
    let arm_of =
        |comparison: &Comparison| comparison.design.compared().find(|arm| comparison.design.arms[*arm].label == policy);
    let of = |comparison: &&'a Comparison| Some(counted_trials(comparison, arm_of(comparison)?));
    comparisons.iter().filter_map(of).flatten().collect()
}

/// The share of the memory to which a policy applies that its trials mapped as requested.
pub(super) fn coverage_ratio(trials: &[&TrialRecord]) -> Option<f64> {
    let verdicts =
        || trials.iter().map(|record| &record.verdict).filter(|verdict| verdict.holding != Holding::NotAsked);
    let concerned: f64 = verdicts().map(|verdict| verdict.concerned_bytes as f64).sum();
    let covered: f64 = verdicts().map(|verdict| verdict.covered_bytes as f64).sum();
    (concerned > 0.0).then(|| covered / concerned)
}
