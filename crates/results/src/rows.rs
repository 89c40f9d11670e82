//! One row per arm: the results of the trials that count.

mod causes;

use std::collections::{BTreeMap, BTreeSet};

use policy::cause::{Cause, CauseShare};
use policy::census::Census;
use policy::remedy;
use policy::verdict::{AnsweredCall, Holding, Peak, Verdict};
use study::comparison::{Admission, Comparison, Ended, Unsupported};
use study::metric::{Metric, Provenance, names};
use study::stats::{self, ArmAnalysis, Effect, Outcome, Warning};
use study::trial::{Arm, TrialRecord};

use crate::collapses::Collapses;
use crate::figure::{self, Change, MAX_BLOCKS};
use crate::fragmented::Scarcity;
use crate::text;
use causes::with_remedy;

pub use causes::cause_clause;

/// An arm and everything that is shown about it.
pub(crate) struct Row<'a> {
    /// Index of the arm.
    pub index: usize,
    pub arm: &'a Arm,
    pub admission: Option<&'a Admission>,
    /// `None` until a block is complete.
    pub analysis: Option<&'a ArmAnalysis>,
    /// Its trials in the blocks that count.
    pub counted: Vec<&'a TrialRecord>,
    /// The verdict that represents these trials (`stats::deciding`); `None` without trials.
    pub deciding: Option<&'a Verdict>,
    /// Message about its trial that was ended because it took too long, if there is one.
    pub too_slow: Option<String>,
    comparison: &'a Comparison,
}

/// The arms that may be called best, the greatest gain first.
pub(crate) fn best(comparison: &Comparison) -> Vec<usize> {
    let Some(analysis) = &comparison.analysis else { return Vec::new() };
    let mut best = analysis.best();
    let gain = |arm: &usize| {
        let effect = analysis.arms[*arm].effects.get(&analysis.primary);
        effect.map_or(0.0, |effect| effect.ratio.ln().abs())
    };
    best.sort_by(|one, two| gain(two).total_cmp(&gain(one)));
    best
}

/// The rows of a comparison, in the order of its arms. Control arms, which follow the others, get no row.
pub(crate) fn rows(comparison: &Comparison) -> Vec<Row<'_>> {
    let blocks = counted_blocks(comparison);
    let row = |index| {
        let counted: Vec<&TrialRecord> = comparison
            .trials
            .iter()
            .filter(|record| record.trial.arm == index && accepted(record) && blocks.contains(&record.trial.block))
            .collect();
        Row {
            index,
            arm: &comparison.design.arms[index],
            admission: comparison.admissions.get(index),
            analysis: comparison.analysis.as_ref().and_then(|analysis| analysis.arms.get(index)),
            deciding: stats::deciding(counted.iter().map(|record| &record.verdict)),
            too_slow: comparison
                .trials
                .iter()
                .find(|record| record.trial.arm == index && accepted(record) && record.answer.too_slow)
                .map(|record| stats::too_slow(&comparison.design, record)),
            counted,
            comparison,
        }
    };
    comparison.design.compared().map(row).collect()
}

/// Whether no setting changed during the trial.
pub(crate) fn accepted(record: &TrialRecord) -> bool {
    record.rejected.is_empty()
}

/// The blocks, except the first, with accepted trials of the baseline and of another arm; in a boot with one arm, its blocks
/// except the first. The analysis counts the same blocks, except those in which the baseline's own answer deviates.
fn counted_blocks(comparison: &Comparison) -> BTreeSet<u32> {
    let outcome = |arm: usize| Some(&comparison.analysis.as_ref()?.arms.get(arm)?.outcome);
    let admitted = |arm: &usize| matches!(comparison.admissions.get(*arm), Some(Admission::Admitted { .. }));
    let right = |arm: &usize| !matches!(outcome(*arm), Some(Outcome::WrongAnswer { .. } | Outcome::TooSlow { .. }));
    let race: Vec<usize> = comparison.design.compared().filter(admitted).filter(right).collect();
    let mut arms_of: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for record in comparison.trials.iter().filter(|record| accepted(record) && record.trial.block > 0) {
        arms_of.entry(record.trial.block).or_default().insert(record.trial.arm);
    }
    let baseline = Some(comparison.design.baseline).filter(|baseline| race.contains(baseline));
    let counts = |(_, arms): &(&u32, &BTreeSet<usize>)| {
        let has_other = race.iter().any(|arm| Some(*arm) != baseline && arms.contains(arm));
        baseline.is_none_or(|baseline| arms.contains(&baseline)) && (has_other || race.len() == 1)
    };
    arms_of.iter().filter(counts).map(|(block, _)| *block).collect()
}

/// Name of the primary metric: the analysis's, which may differ from the design's.
pub(crate) fn primary(comparison: &Comparison) -> &str {
    comparison.analysis.as_ref().map_or(&comparison.design.primary, |analysis| &analysis.primary)
}

/// The display name of a metric; with a server, whose time it is.
pub(crate) fn title(comparison: &Comparison, metric: &str) -> String {
    let of = match metric {
        _ if comparison.invocation.client.is_none() => "",
        names::WALL_S => "client's ",
        names::CPU_S => "server's ",
        _ => "",
    };
    format!("{of}{}", figure::title(metric))
}

/// The metrics whose changes are shown next to each other: the primary one, then those that the user requested in
/// addition to the standard ones, then wall and CPU time.
pub(crate) fn headline_metrics(comparison: &Comparison) -> Vec<Metric> {
    comparison.design.headline_metrics()
}

/// Every observed metric, those of the design first and in its order.
pub(crate) fn observed_metrics(comparison: &Comparison) -> Vec<Metric> {
    let observations = || comparison.trials.iter().flat_map(|record| &record.observations);
    let observed: BTreeSet<&str> = observations().map(|observation| observation.metric.as_str()).collect();
    let mut metrics: Vec<Metric> =
        comparison.design.metrics.iter().filter(|metric| observed.contains(metric.name.as_str())).cloned().collect();
    for name in observed {
        if metrics.iter().all(|metric| metric.name != name) {
            metrics.push(figure::metric(&comparison.design.metrics, name));
        }
    }
    metrics
}

pub(crate) fn baseline_label(comparison: &Comparison) -> String {
    let baseline = comparison.design.arms.get(comparison.design.baseline);
    baseline.map_or_else(|| "the baseline".to_string(), |arm| text::printable(&arm.label))
}

impl Row<'_> {
    /// The label, safe to print.
    pub fn label(&self) -> String {
        text::printable(&self.arm.label)
    }

    /// Why the policy cannot be applied here.
    pub fn unsupported(&self) -> Option<&Unsupported> {
        match self.admission {
            Some(Admission::Unsupported(unsupported)) => Some(unsupported),
            _ => None,
        }
    }

    /// Whether no trial gave a wrong answer or took too long, as far as that is known.
    pub fn has_right_answer(&self) -> bool {
        let outcome = self.analysis.map(|analysis| &analysis.outcome);
        !matches!(outcome, Some(Outcome::WrongAnswer { .. } | Outcome::TooSlow { .. }))
    }

    pub fn median(&self, metric: &str) -> Option<f64> {
        self.analysis?.medians.get(metric).copied()
    }

    /// The value to print next to a change: the baseline's median; for another arm, that median times the arm's ratio. This makes
    /// the change the ratio of two printed values. The ratio of the two medians would be another estimate, which ignores blocks.
    pub fn typical(&self, metric: &str) -> Option<f64> {
        let analysis = self.comparison.analysis.as_ref()?;
        let of_baseline = analysis.arms.get(analysis.baseline)?.medians.get(metric);
        let scaled = self.effect(metric).zip(of_baseline).map(|(effect, baseline)| baseline * effect.ratio);
        scaled.or_else(|| self.median(metric))
    }

    /// The change of a metric against the baseline.
    pub fn effect(&self, metric: &str) -> Option<&Effect> {
        self.analysis?.effects.get(metric)
    }

    /// The effect of the tracer's stops alone on a metric: for the baseline relative to a bare run, for another arm
    /// relative to the baseline's. `None` if it was not measured, or if the arm stops as the baseline does.
    pub fn cost(&self, metric: &str) -> Option<Change> {
        let analysis = self.analysis?;
        let cost = analysis.tracer_cost.get(metric)?;
        let of_bare = (analysis.outcome == Outcome::Baseline).then_some(&cost.of_bare);
        of_bare.or(cost.bound.as_ref()).map(Change::of)
    }

    /// The provenances of the arm's values of a metric; several if they are mixed.
    pub fn provenances(&self, metric: &str) -> Vec<Provenance> {
        let mut found = Vec::new();
        for observation in self.counted.iter().flat_map(|record| &record.observations) {
            if observation.metric == metric && !found.contains(&observation.provenance) {
                found.push(observation.provenance);
            }
        }
        found
    }

    /// The holding over the trials that count, as determined by `study`; `None` without trials.
    pub fn holding(&self) -> Option<Holding> {
        self.deciding.map(|verdict| verdict.holding)
    }

    /// Whether the policy was shown to be in force, or requests nothing.
    pub fn is_held(&self) -> bool {
        matches!(self.holding(), None | Some(Holding::Held | Holding::NotAsked))
    }

    /// The share of the concerned memory that is mapped as requested in at least nine of ten trials that count,
    /// consistent with the holding; `None` if the policy requests nothing, if no memory is concerned, or if the share
    /// is unknown.
    pub fn coverage_ratio(&self) -> Option<f64> {
        let known = |verdict: &&Verdict| !matches!(verdict.holding, Holding::NotAsked | Holding::Unknown);
        self.deciding.filter(known)?.coverage_ratio()
    }

    /// The share over all trials that count; `None` if the policy requests nothing or no memory is concerned. Memory
    /// whose mapping is unknown is not counted.
    pub fn mean_coverage_ratio(&self) -> Option<f64> {
        if matches!(self.holding(), None | Some(Holding::NotAsked)) {
            return None;
        }
        let sum = |bytes: fn(&TrialRecord) -> u64| self.counted.iter().map(|record| bytes(record) as f64).sum::<f64>();
        let concerned = sum(|record| record.verdict.concerned_bytes);
        (concerned > 0.0).then(|| sum(|record| record.verdict.covered_bytes) / concerned)
    }

    /// The peak memory and how much of it was inspected, in the trial of the deciding verdict.
    pub fn peak(&self) -> Option<Peak> {
        self.deciding?.peak
    }

    /// `12M of 493M`; if the peak is only known within bounds, both: `12M of 40M to 493M`.
    pub fn peak_seen(&self) -> Option<String> {
        let Peak { seen_bytes, least_bytes, most_bytes } = self.peak()?;
        let [seen, least, most] = [seen_bytes, least_bytes, most_bytes].map(policy::size::format_bytes);
        let known = Peak { seen_bytes, least_bytes, most_bytes }.is_unseen() || least == most;
        Some(if known { format!("{seen} of {least}") } else { format!("{seen} of {least} to {most}") })
    }

    /// `held` and `97 %`, separated by `between`.
    pub fn verdict(&self, between: &str) -> String {
        match (self.holding(), self.coverage_ratio()) {
            (None, _) => String::new(),
            (Some(word), Some(ratio)) => format!("{word}{between}{}", figure::share(ratio)),
            (Some(word), None) => word.to_string(),
        }
    }

    /// If the trials differ in the share mapped as requested: which trial the verdict represents, and the average.
    pub fn spread(&self) -> Option<String> {
        let (least, mean) = (figure::share(self.coverage_ratio()?), figure::share(self.mean_coverage_ratio()?));
        let worst = if self.counted.len() < 10 { "run" } else { "tenth of the runs" };
        (least != mean).then(|| format!("in the worst {worst}, {mean} on average"))
    }

    /// Causes over all trials that count. If the policy was not shown to be in force, a proof from some of the trials is left out.
    pub fn causes(&self) -> Vec<CauseShare> {
        let mut causes = stats::causes(&self.counted);
        causes.retain(|share| self.is_held() || share.cause != Cause::ProvenByThpDisable);
        causes
    }

    /// The clauses about one of its causes, with the bytes of a run.
    pub fn cause_clause(&self, share: &CauseShare) -> String {
        with_remedy(share, " a run", self.remedy(&share.cause))
    }

    /// The remedy for a cause, unless this comparison already applied it.
    pub fn remedy(&self, cause: &Cause) -> Option<String> {
        let is_all_inspected = self.comparison.design.prove_all;
        let of_cause = if is_all_inspected { remedy::of_cause_although_all_is_inspected } else { remedy::of_cause };
        of_cause(cause)
    }

    /// Calls that were answered instead of passed to the kernel: the maximum number in a trial.
    pub fn answered(&self) -> Vec<AnsweredCall> {
        let mut times_of: BTreeMap<&str, u64> = BTreeMap::new();
        for answered in self.counted.iter().flat_map(|record| &record.verdict.answered) {
            let times = times_of.entry(&answered.call).or_default();
            *times = answered.times.max(*times);
        }
        times_of.into_iter().map(|(call, times)| AnsweredCall { call: call.to_string(), times }).collect()
    }

    /// How scarce large pages were on the host meanwhile; `None` if no trial has the counters.
    pub fn scarcity(&self) -> Option<Scarcity> {
        Scarcity::of(&self.counted)
    }

    /// The work of khugepaged on the host meanwhile; `None` if no trial has the counter.
    pub fn collapses(&self) -> Option<Collapses> {
        let counts: Vec<u64> = self
            .counted
            .iter()
            .filter_map(|record| record.value(names::HOST_COLLAPSES))
            .map(|count| count as u64)
            .collect();
        let some = || counts.iter().copied().filter(|count| *count > 0);
        (!counts.is_empty()).then(|| Collapses {
            of_trials: counts.len(),
            trials: some().count(),
            least: some().min().unwrap_or(0),
            most: some().max().unwrap_or(0),
        })
    }

    /// What mapped the memory in a trial, averaged over those that count.
    pub fn census(&self) -> Census {
        let mut sum = Census::default();
        self.counted.iter().for_each(|record| sum.merge(&record.census));
        let trials = self.counted.len().max(1) as u64;
        let mut mean = Census::default();
        sum.rows().for_each(|(mapping, bytes)| mean.add(*mapping, bytes / trials));
        mean
    }

    /// What would settle an undecided row, if known: `~40 blocks`; if the comparison ended because it reached the
    /// requested precision, a precision (`to 0.5 %`).
    pub fn what_would_settle_it(&self) -> Option<String> {
        let blocks = self.blocks_needed()?;
        Some(match self.precision_needed() {
            _ if blocks > MAX_BLOCKS => format!(">{MAX_BLOCKS} blocks"),
            Some(ratio) => format!("to {}", figure::precision(ratio)),
            None => format!("~{blocks} blocks"),
        })
    }

    /// Estimated number of blocks after which an undecided row would be decided.
    pub fn blocks_needed(&self) -> Option<u32> {
        match self.analysis?.outcome {
            Outcome::Undecided { blocks_needed } => blocks_needed,
            _ => None,
        }
    }

    /// The precision that would decide an undecided row, if the comparison ended because it reached the requested precision.
    pub fn precision_needed(&self) -> Option<f64> {
        if self.comparison.ended != Ended::Precise {
            return None;
        }
        self.effect(primary(self.comparison))?.half_width_after(self.blocks_needed()?)
    }

    /// The outcome in one or two words.
    pub fn outcome(&self) -> String {
        if self.unsupported().is_some() {
            return "unsupported".to_string();
        }
        let Some(analysis) = self.analysis else {
            return if self.too_slow.is_some() { "too slow" } else { "not measured" }.to_string();
        };
        match &analysis.outcome {
            Outcome::Baseline => "baseline",
            Outcome::Better { best: true } if analysis.tied.is_empty() => "best",
            Outcome::Better { best: true } => "tied best",
            Outcome::Better { best: false } => "better",
            Outcome::Worse => "worse",
            Outcome::Equivalent => "equivalent",
            Outcome::Undecided { .. } => "undecided",
            Outcome::Unsupported => "unsupported",
            Outcome::WrongAnswer { .. } => "wrong answer",
            Outcome::TooSlow { .. } => "too slow",
            Outcome::WithinTracerCost => WITHIN_TRACER_COST,
            Outcome::NotMeasured | Outcome::Control => "not measured",
        }
        .to_string()
    }
}

/// Description of a change that the tracer's own stops could have caused.
pub(crate) const WITHIN_TRACER_COST: &str = "unproven: the tracer's cost";

/// The warnings with their remedies; if consecutive warnings share a remedy, only the last one has it.
pub(crate) fn warnings(comparison: &Comparison) -> Vec<(&Warning, Option<String>)> {
    let all = comparison.analysis.as_ref().map_or(&[][..], |analysis| &analysis.warnings);
    let warnings: Vec<&Warning> = all.iter().filter(|warning| !is_remedied(comparison, warning)).collect();
    let remedy_of = |(at, warning): (usize, &&Warning)| {
        let remedy = warning.remedy();
        let follows = warnings.get(at + 1).is_some_and(|next| next.remedy() == remedy);
        (!follows).then_some(remedy)
    };
    let remedies: Vec<Option<String>> = warnings.iter().enumerate().map(remedy_of).collect();
    warnings.into_iter().zip(remedies).collect()
}

/// Whether the comparison has done what a warning advises: a command before each trial that touches memory.
fn is_remedied(comparison: &Comparison, warning: &Warning) -> bool {
    let prepare = comparison.invocation.prepare.iter().flatten();
    matches!(warning, Warning::FreeMemoryReported { .. }) && prepare.into_iter().any(|word| word == "page-touch")
}
