//! Finds the objections that a careful reader would raise ([`Warning`]).

use super::blocks::Blocks;
use super::holding::holding;
use super::median::median;
use super::trend::Trend;
use crate::comparison::Design;
use crate::metric::{Direction, Metric, Unit, names};
use crate::result::{ArmAnalysis, Outcome, Warning};
use crate::trial::TrialRecord;
use policy::machine::State;
use policy::verdict::Holding;

/// Significance level for the warning about drift.
const DRIFT_ALPHA: f64 = 0.01;
/// Minimum number of samples for the search for two groups.
const MIN_BIMODAL_SAMPLES: usize = 12;
/// Minimum share of the samples in the smaller group; fewer are outliers.
const MIN_GROUP_SHARE: f64 = 0.2;
/// Threshold of Ashman's D for two groups in a large sample.
const MIN_SEPARATION: f64 = 4.0;
/// Added to the threshold after division by the number of samples: the best split of few samples separates them more by chance.
const MIN_SEPARATION_OF_FEW: f64 = 30.0;
/// Minimum number of samples for the search for outliers.
const MIN_OUTLIER_SAMPLES: usize = 8;
/// Distance from the median beyond which a sample is an outlier, in standard deviations estimated from the median
/// absolute deviation.
const OUTLIER_DEVIATIONS: f64 = 5.0;
/// Median absolute deviation of a normal distribution with standard deviation 1: its upper quartile.
const NORMAL_MAD: f64 = 0.674_489_750_196_081_7;
/// Maximum tracing overhead without a warning, as a share of the time.
const MAX_TRACER_SHARE: f64 = 0.01;
/// Maximum share of the wall time that inspections without a limit may take without a warning.
const MAX_LOOKS_SHARE: f64 = 0.001;
/// Minimum share of the CPU time in processes that outlive the first one at which wall time is not the program's.
const MIN_OUTLIVED_SHARE: f64 = 0.1;
/// Minimum seconds by which others outlive the first process for a warning, if they outlive it for longer than it lived.
const MIN_OUTLIVED_S: f64 = 0.1;
/// Maximum ratio of two wall times of a program that runs for a fixed time. Its start and end come on top.
const MAX_FIXED_TIME_RATIO: f64 = 1.05;
/// How many times as far apart as the wall times its throughputs must be, as logarithms. The throughput of a fixed amount of work is
/// as far apart as the wall times.
const MIN_FIXED_TIME_SPREADS: f64 = 3.0;
/// Minimum seconds of such a program.
const MIN_FIXED_TIME_S: f64 = 0.5;
/// Minimum shared memory for a warning, as a share of the memory to which policies apply.
const MIN_SHARED_SHARE: f64 = 0.1;
/// Minimum shared memory for a warning, in bytes.
const MIN_SHARED_BYTES: u64 = 1 << 20;
/// Wall time in seconds below which process startup dominates.
const MIN_RUN_S: f64 = 0.02;

/// Minimum share of the direct map in leaves as small as those of a demotion for a warning.
///
/// With a smaller leaf, an access that misses the TLB reads one more page table entry. At worst that entry misses the
/// cache like the data itself, so the access takes at most twice as long. If a share S of memory has such leaves,
/// kernel work that consists only of such accesses, spread over memory, is slowed by at most S: 1 % is not more than
/// the smallest change that a comparison reports by default (`--band 1%`). Real kernel work spends a few per cent of
/// its time in walks, which leaves room for a program whose memory is in small leaves ten times as often as by chance.
/// Without pagelab a boot also has some such leaves: 20M of 24G, 0.1 %, on a virtual machine with Linux 6.18.
pub const DEMOTED_SHARE: f64 = 0.01;

/// All warnings about the trials. `arms` contains the conclusion about each arm, and `is_wall_requested` is whether the
/// requested primary metric is wall time.
pub(crate) fn warnings(
    design: &Design,
    trials: &[TrialRecord],
    blocks: &Blocks<'_>,
    arms: &[ArmAnalysis],
    is_wall_requested: bool,
) -> Vec<Warning> {
    let each = || design.compared();
    let mut warnings = Vec::new();
    let outlived = outlived_share(blocks, each());
    let cpu_decides = is_wall_requested && design.primary == names::CPU_S;
    warnings.extend(outlived.map(|ratio| Warning::FirstProcessEnds { ratio, cpu_decides }));
    warnings.extend(fixed_time(design, blocks));
    warnings.extend(baseline_not_held(design, blocks));
    warnings.extend(each().filter_map(|arm| aa_differs(design, &arms[arm].outcome, arm)));
    warnings.extend(drift(design, blocks));
    warnings.extend(each().filter_map(|arm| bimodal(design, blocks, arm)));
    warnings.extend(each().filter_map(|arm| outliers(design, blocks, arm)));
    warnings.extend(rejected(trials));
    warnings.extend(each().filter_map(|arm| match design.bare() {
        Some(_) => tracer_cost(design, &arms[arm], arm),
        None => tracer_load(blocks, arm),
    }));
    warnings.extend(each().filter(|_| design.prove_all).filter_map(|arm| looks(blocks, arm)));
    warnings.extend(demoted(trials));
    warnings.extend(reported(trials));
    warnings.extend(shared_memory(blocks, each()));
    if outlived.is_none() {
        warnings.extend(short_runs(design, blocks));
    }
    warnings
}

fn baseline_not_held(design: &Design, blocks: &Blocks<'_>) -> Option<Warning> {
    let held = holding(blocks.trials(design.baseline).map(|record| &record.verdict));
    (!matches!(held, Some(Holding::Held | Holding::NotAsked) | None)).then_some(Warning::BaselineNotHeld)
}

fn aa_differs(design: &Design, outcome: &Outcome, arm: usize) -> Option<Warning> {
    let differs = matches!(outcome, Outcome::Better { .. } | Outcome::Worse);
    (design.is_aa(arm) && differs).then_some(Warning::AaDiffers { arm })
}

/// The baseline's trend, if chance does not explain it and it exceeds the practical band over the run.
fn drift(design: &Design, blocks: &Blocks<'_>) -> Option<Warning> {
    let trend = Trend::of_points(&blocks.logs(design.baseline, &design.primary))?;
    let is_drift = trend.p_value < DRIFT_ALPHA && trend.ratio.ln().abs() > design.band_ratio.ln_1p();
    is_drift.then_some(Warning::Drift { ratio: trend.ratio })
}

/// Splits the sorted logarithms where the squared deviations within groups are smallest, and tests whether the groups
/// are far apart for their width (Ashman, Bird and Zepf 1994: D above 2 separates two given normal components; a higher
/// value is needed if the split was searched for).
fn bimodal(design: &Design, blocks: &Blocks<'_>, arm: usize) -> Option<Warning> {
    let mut logs: Vec<f64> = blocks.logs(arm, &design.primary).into_iter().map(|(_, log)| log).collect();
    if logs.len() < MIN_BIMODAL_SAMPLES {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let smallest = (MIN_GROUP_SHARE * logs.len() as f64).ceil() as usize;
    let squares = |split: usize| Group::of(&logs[..split]).squares + Group::of(&logs[split..]).squares;
    let split = (smallest..=logs.len() - smallest).min_by(|one, two| squares(*one).total_cmp(&squares(*two)))?;
    let (low, high) = (Group::of(&logs[..split]), Group::of(&logs[split..]));
    let distance = high.mean - low.mean;
    let width = ((low.variance() + high.variance()) / 2.0).sqrt();
    let separation = MIN_SEPARATION + MIN_SEPARATION_OF_FEW / logs.len() as f64;
    let two = distance > design.band_ratio.ln_1p() && distance > separation * width;
    two.then(|| Warning::Bimodal { arm, low: low.mean.exp(), high: high.mean.exp() })
}

struct Group {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Group {
    fn of(values: &[f64]) -> Group {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        Group { count, mean, squares: values.iter().map(|value| (value - mean).powi(2)).sum() }
    }

    fn variance(&self) -> f64 {
        self.squares / (self.count - 1.0).max(1.0)
    }
}

fn outliers(design: &Design, blocks: &Blocks<'_>, arm: usize) -> Option<Warning> {
    let mut logs: Vec<f64> = blocks.logs(arm, &design.primary).into_iter().map(|(_, log)| log).collect();
    if logs.len() < MIN_OUTLIER_SAMPLES {
        return None;
    }
    let centre = median(&mut logs)?;
    let mut distances: Vec<f64> = logs.iter().map(|log| (log - centre).abs()).collect();
    let deviation = median(&mut distances)? / NORMAL_MAD;
    let far = |distance: &&f64| **distance > (OUTLIER_DEVIATIONS * deviation).max(design.band_ratio.ln_1p());
    let count = distances.iter().filter(far).count() as u32;
    (count > 0).then_some(Warning::Outliers { arm, count, of: logs.len() as u32 })
}

fn rejected(trials: &[TrialRecord]) -> Option<Warning> {
    let mut changes = trials.iter().filter_map(|record| record.rejected.first());
    let path = changes.next()?.path.clone();
    Some(Warning::Rejected { count: 1 + changes.count() as u32, path })
}

/// A demotion of enough memory to matter, or of an unknown amount.
fn demoted(trials: &[TrialRecord]) -> Option<Warning> {
    let states = trials.iter().flat_map(|record| [&record.state_before, &record.state_after]);
    let states: Vec<&State> = states.filter(|state| state.demoted_to.is_some()).collect();
    let leaf = states.iter().filter_map(|state| state.demoted_to).min()?;
    let ratios: Option<Vec<f64>> = states.iter().map(|state| state.direct_map_ratio(leaf)).collect();
    let ratio = ratios.map(|ratios| ratios.into_iter().fold(0.0, f64::max));
    ratio.is_none_or(|ratio| ratio >= DEMOTED_SHARE).then_some(Warning::DirectMapDemoted { leaf, ratio })
}

fn reported(trials: &[TrialRecord]) -> Option<Warning> {
    let blocks = trials.iter().filter_map(|record| record.state_before.reported_block);
    blocks.min().map(|block| Warning::FreeMemoryReported { block, explained_by: None })
}

/// The cost that the stops certainly have, if it is noticeable.
fn tracer_cost(design: &Design, analysis: &ArmAnalysis, arm: usize) -> Option<Warning> {
    let cost = analysis.tracer_cost.get(&design.primary)?;
    let own = arm == design.baseline || cost.bound.is_some();
    let certain = cost.of_bare.low.is_some_and(|low| low > 1.0) || cost.of_bare.high.is_some_and(|high| high < 1.0);
    let ratio = cost.of_bare.ratio;
    (own && certain && ratio.ln().abs() > MAX_TRACER_SHARE).then_some(Warning::TracerCost { arm, ratio })
}

fn tracer_load(blocks: &Blocks<'_>, arm: usize) -> Option<Warning> {
    let ratio = share_of_wall(blocks, arm, names::TRACER_S)?;
    (ratio > MAX_TRACER_SHARE).then_some(Warning::TracerLoad { arm, ratio })
}

fn looks(blocks: &Blocks<'_>, arm: usize) -> Option<Warning> {
    let ratio = share_of_wall(blocks, arm, names::LOOKS_S)?;
    (ratio > MAX_LOOKS_SHARE).then_some(Warning::InspectionInWallTime { arm, ratio })
}

/// The median of a time as a share of the wall time.
fn share_of_wall(blocks: &Blocks<'_>, arm: usize, name: &str) -> Option<f64> {
    let share = |record: &TrialRecord| Some(record.value(name)? / record.value(names::WALL_S)?);
    let mut shares: Vec<f64> = blocks.trials(arm).filter_map(share).filter(|share| share.is_finite()).collect();
    median(&mut shares)
}

/// The primary metric. If the first process ends while others continue, wall time does not measure the program, and CPU time
/// replaces it.
pub(crate) fn deciding_metric(design: &Design, blocks: &Blocks<'_>) -> String {
    let is_wall = design.primary == names::WALL_S && design.metrics.iter().any(|metric| metric.name == names::CPU_S);
    if is_wall && outlived_share(blocks, 0..design.arms.len()).is_some() {
        names::CPU_S.to_owned()
    } else {
        design.primary.clone()
    }
}

/// The share of the CPU time in processes that outlive the first one, in the arm with the largest share. `None` if in every arm the
/// share is small and they do not outlive it for longer than it lived.
fn outlived_share(blocks: &Blocks<'_>, arms: impl Iterator<Item = usize>) -> Option<f64> {
    let median_of = |arm, share: &dyn Fn(&TrialRecord) -> Option<f64>| {
        let shares = blocks.trials(arm).filter_map(share).filter(|share| share.is_finite());
        median(&mut shares.collect::<Vec<_>>())
    };
    let of_arm = |arm| {
        let outlived_s = median_of(arm, &|record| record.value(names::OUTLIVED_S))?;
        let wall_s = median_of(arm, &|record| record.value(names::WALL_S))?;
        let share = median_of(arm, &|record| Some(record.value(names::OUTLIVED_CPU_S)? / record.value(names::CPU_S)?))?;
        let outlives = outlived_s >= MIN_OUTLIVED_S && outlived_s > wall_s;
        (share >= MIN_OUTLIVED_SHARE || outlives).then_some(share.min(1.0))
    };
    arms.filter_map(of_arm).max_by(f64::total_cmp)
}

fn fixed_time(design: &Design, blocks: &Blocks<'_>) -> Option<Warning> {
    let values = |metric: &str| design.compared().flat_map(|arm| blocks.values(arm, metric)).collect::<Vec<f64>>();
    let log_spread = |values: &[f64]| {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        Some((values.iter().copied().max_by(f64::total_cmp)? / least).ln())
    };
    let mut all_wall_s = values(names::WALL_S);
    let (wall_s, wall_spread) = (median(&mut all_wall_s)?, log_spread(&all_wall_s)?);
    let is_fixed = wall_spread <= MAX_FIXED_TIME_RATIO.ln() && wall_s >= MIN_FIXED_TIME_S;
    let differs = |metric: &&Metric| {
        let is_throughput = metric.unit == Unit::Custom && metric.direction == Direction::Higher;
        let spread = log_spread(&values(&metric.name)).filter(|_| is_throughput);
        spread.is_some_and(|spread| spread > design.band_ratio.ln_1p().max(MIN_FIXED_TIME_SPREADS * wall_spread))
    };
    let metric = design.metrics.iter().find(differs).filter(|_| is_fixed && design.primary == names::WALL_S)?;
    Some(Warning::FixedTime { wall_s, metric: metric.name.clone() })
}

fn shared_memory(blocks: &Blocks<'_>, arms: impl Iterator<Item = usize>) -> Option<Warning> {
    let trials: Vec<&TrialRecord> = arms.flat_map(|arm| blocks.trials(arm)).collect();
    let median_of = |value: &dyn Fn(&TrialRecord) -> Option<f64>| {
        median(&mut trials.iter().filter_map(|record| value(record)).collect::<Vec<_>>())
    };
    let bytes = median_of(&|record| record.value(names::SHARED_BYTES))? as u64;
    let concerned_bytes = median_of(&|record| Some(record.verdict.concerned_bytes as f64))? as u64;
    let is_large = bytes >= MIN_SHARED_BYTES && bytes as f64 >= MIN_SHARED_SHARE * concerned_bytes as f64;
    is_large.then_some(Warning::SharedMemory { bytes, concerned_bytes })
}

fn short_runs(design: &Design, blocks: &Blocks<'_>) -> Option<Warning> {
    let wall_s = median(&mut blocks.values(design.baseline, names::WALL_S))?;
    (wall_s < MIN_RUN_S).then_some(Warning::ShortRuns { wall_s })
}
