//! One [`Row`] for each arm of a comparison: what every renderer shows about the arm, computed from the trials that
//! count.

mod causes;

use std::collections::{BTreeMap, BTreeSet};

use policy::cause::{Cause, CauseShare};
use policy::census::Census;
use policy::remedy;
use policy::verdict::{AnsweredCall, Holding, Peak, Verdict};
use policy::{Admission, Unsupported};
use study::comparison::{Comparison, Ended};
use study::metric::{Metric, Provenance, names};
use study::stats::{self, ArmAnalysis, Effect, Outcome, Warning};
use study::trial::{Arm, TrialRecord};

use crate::collapses::Collapses;
use crate::figure::{self, Change, MAX_BLOCKS};
use crate::fragmented::Scarcity;
use crate::text;
use causes::with_remedy;

pub use causes::cause_clause;

/// An arm, its counted trials and its analysis: everything that tables, sentences and pages show about it.
pub(crate) struct Row<'a> {
    /// Index of the arm.
    pub index: usize,
    pub arm: &'a Arm,
    pub admission: Option<&'a Admission>,
    /// `None` until the first block is complete.
    pub analysis: Option<&'a ArmAnalysis>,
    /// The arm's accepted trials in the blocks that count ([`counted_blocks`]).
    pub counted: Vec<&'a TrialRecord>,
    /// The verdict that represents the counted trials (`stats::deciding`); `None` without trials.
    pub deciding: Option<&'a Verdict>,
    /// The message about a trial of this arm that was ended because it took too long, if there is one.
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

/// Whether no setting changed during the trial. A trial during which one changed is rejected.
pub(crate) fn accepted(record: &TrialRecord) -> bool {
    record.rejected.is_empty()
}

/// The blocks that count: all but block 0 that have accepted trials of the baseline and of another arm. In a boot with only
/// one arm, all its blocks but block 0. The analysis counts the same blocks, except those in which the baseline's own answer
/// deviates.
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

/// Name of the primary metric in the analysis, which may differ from the one in the design.
pub(crate) fn primary(comparison: &Comparison) -> &str {
    comparison.analysis.as_ref().map_or(&comparison.design.primary, |analysis| &analysis.primary)
}

/// The display name of a metric. If the command is a server with a client, the name says whether the time is the
/// server's or the client's.
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

/// Every observed metric: first those of the design, in the design's order.
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

    /// How much the tracer's stops alone change a metric: for the baseline relative to a bare run, for another arm
    /// relative to the baseline. `None` if this was not measured, or if the arm stops as often as the baseline.
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

    /// Whether the policy held over the counted trials, as determined by `study`; `None` without trials.
    pub fn holding(&self) -> Option<Holding> {
        self.deciding.map(|verdict| verdict.holding)
    }

    /// Whether the policy was shown to be in force, or requests nothing. Also true without trials.
    pub fn is_held(&self) -> bool {
        matches!(self.holding(), None | Some(Holding::Held | Holding::NotAsked))
    }

    /// The share of the memory concerned by the policy that is mapped as requested. At least nine of ten counted trials
    /// reach this share, as [`Row::holding`] requires; `None` if the policy requests nothing, if it concerns no memory,
    /// or if the share is unknown.
    pub fn coverage_ratio(&self) -> Option<f64> {
        let known = |verdict: &&Verdict| !matches!(verdict.holding, Holding::NotAsked | Holding::Unknown);
        self.deciding.filter(known)?.coverage_ratio()
    }

    /// The mean share over all counted trials; `None` if the policy requests nothing or concerns no memory. Memory
    /// whose mapping is unknown is not counted.
    pub fn mean_coverage_ratio(&self) -> Option<f64> {
        if matches!(self.holding(), None | Some(Holding::NotAsked)) {
            return None;
        }
        let sum = |bytes: fn(&TrialRecord) -> u64| self.counted.iter().map(|record| bytes(record) as f64).sum::<f64>();
        let concerned = sum(|record| record.verdict.concerned_bytes);
        (concerned > 0.0).then(|| sum(|record| record.verdict.covered_bytes) / concerned)
    }

    /// The peak memory, and how much of it was inspected, in the trial with the deciding verdict.
    pub fn peak(&self) -> Option<Peak> {
        self.deciding?.peak
    }

    /// `12M of 493M`: memory inspected, of the peak. If the peak is known only within bounds, both bounds:
    /// `12M of 40M to 493M`.
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

    /// If the trials differ in the share mapped as requested: which trials the verdict represents, and the average
    /// share.
    pub fn spread(&self) -> Option<String> {
        let (least, mean) = (figure::share(self.coverage_ratio()?), figure::share(self.mean_coverage_ratio()?));
        let worst = if self.counted.len() < 10 { "run" } else { "tenth of the runs" };
        (least != mean).then(|| format!("in the worst {worst}, which decides, and on {mean} on average"))
    }

    /// Causes over all counted trials. A cause that proves a policy is left out if only some trials have it and the policy was not
    /// shown to be in force; that too little of the peak was inspected, if the policy was shown without that.
    pub fn causes(&self) -> Vec<CauseShare> {
        let mut causes = stats::causes(&self.counted);
        causes.retain(|share| {
            let is_of_others =
                if self.is_held() { concerns_the_peak(&share.cause) } else { share.cause == Cause::ProvenByThpDisable };
            !is_of_others
        });
        causes
    }

    /// A cause in words, with its bytes per run and its remedy.
    pub fn cause_clause(&self, share: &CauseShare) -> String {
        with_remedy(share, " a run", self.remedy(&share.cause))
    }

    /// The remedy for a cause, unless this comparison already applied it.
    pub fn remedy(&self, cause: &Cause) -> Option<String> {
        let is_all_inspected = self.comparison.design.prove_all;
        let of_cause = if is_all_inspected { remedy::of_cause_although_all_is_inspected } else { remedy::of_cause };
        of_cause(cause)
    }

    /// Calls that pagelab answered instead of passing them to the kernel, each with its maximum number in a trial.
    pub fn answered(&self) -> Vec<AnsweredCall> {
        let mut times_of: BTreeMap<&str, u64> = BTreeMap::new();
        for answered in self.counted.iter().flat_map(|record| &record.verdict.answered) {
            let times = times_of.entry(&answered.call).or_default();
            *times = answered.times.max(*times);
        }
        times_of.into_iter().map(|(call, times)| AnsweredCall { call: call.to_string(), times }).collect()
    }

    /// How scarce large pages were on the host during the counted trials; `None` if no trial has the counters.
    pub fn scarcity(&self) -> Option<Scarcity> {
        Scarcity::of(&self.counted)
    }

    /// The work of khugepaged on the host during the counted trials; `None` if no trial has the counter.
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

    /// What mapped the memory in a trial: the mean over the counted trials.
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

/// Whether the cause is that too little of the peak was inspected. Such a cause is remedied by another way to measure.
pub(crate) fn concerns_the_peak(cause: &Cause) -> bool {
    matches!(cause, Cause::PeakUnseen | Cause::PeakUnwatched { .. } | Cause::PeakUncertain)
}

/// The outcome of an arm whose change could be caused by the tracer's own stops.
pub(crate) const WITHIN_TRACER_COST: &str = "unproven: the tracer's cost";

/// The warnings with their remedies; if consecutive warnings share a remedy, only the last one has it.
pub(crate) fn warnings(comparison: &Comparison) -> Vec<(&Warning, Option<String>)> {
    let all = comparison.analysis.as_ref().map_or(&[][..], |analysis| &analysis.warnings);
    let warnings: Vec<&Warning> = all.iter().filter(|warning| !is_remedied(comparison, warning)).collect();
    let remedy_of = |(at, warning): (usize, &&Warning)| {
        let remedy = warning.remedy();
        let follows = warnings.get(at + 1).is_some_and(|next| next.remedy() == remedy);
        // Variants are how a program's own setting is compared.
        let is_followed =
            matches!(warning, Warning::SharedMemory { .. }) && comparison.design.has_variant_with("huge_pages");
        (!follows && !is_followed).then_some(remedy)
    };
    let remedies: Vec<Option<String>> = warnings.iter().enumerate().map(remedy_of).collect();
    warnings.into_iter().zip(remedies).collect()
}

/// Whether the comparison already does what the warning advises, which is to touch memory with a command before each
/// trial.
fn is_remedied(comparison: &Comparison, warning: &Warning) -> bool {
    let prepare = comparison.invocation.prepare.iter().flatten();
    matches!(warning, Warning::FreeMemoryReported { .. }) && prepare.into_iter().any(|word| word == "page-touch")
}
