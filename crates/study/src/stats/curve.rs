//! The share of a policy's gain as a function of the share of memory that is large: measured shares, and straight lines between
//! them.
//!
//! On ten programs with twenty layouts of large pages each, no fitted model of run time was better than the straight line between
//! two measured shares: its error was 2 to 2.3 % (geometric mean). So the interval of a point on a line has three parts: the
//! sampling of blocks (bootstrap over blocks), the noise of a measurement at that share (as large as that of its neighbours), and
//! the error of the line.

use std::iter::once;

use policy::size::PageSize;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::blocks::Blocks;
use super::gain_share;
use super::median::median;
use super::normal_quantile;
use super::signed_rank::{Centre, SignedRank};
use crate::comparison::Design;
use crate::metric::{Direction, names};
use crate::result::{ArmAnalysis, Curve, CurvePoint, Enough, LinePoint, Share};
use crate::trial::TrialRecord;

/// Standard deviation of the line's error, as a ratio of the baseline's value.
const LINE_ERROR: f64 = 0.025;
/// The share of the gain that is enough.
const ENOUGH: f64 = 0.9;
/// A gain is divided among shares if it is at least this many times as large as half its interval.
const MIN_GAIN: f64 = 2.0;
/// Maximum difference between the observed and the requested share at which a point counts, as a share of the memory.
const MAX_SHARE_ERROR: f64 = 0.05;
/// Steps of the line from no memory to all of it.
const STEPS: u32 = 32;
/// Number of resamples. They are used only for standard deviations, which need no more.
const RESAMPLES: usize = 200;

/// Records the curve of every arm that has shares.
pub(crate) fn mark(design: &Design, blocks: &Blocks<'_>, arms: &mut [ArmAnalysis], signed_rank: &mut SignedRank) {
    for (arm, analysis) in arms.iter_mut().enumerate() {
        let shares = design.shares_of(arm);
        if !shares.is_empty() && blocks.is_right(arm) && blocks.is_right(design.baseline) {
            analysis.curve = curve(design, blocks, (arm, shares), signed_rank);
        }
    }
}

fn curve(
    design: &Design,
    blocks: &Blocks<'_>,
    (whole, shares): (usize, Vec<usize>),
    signed_rank: &mut SignedRank,
) -> Option<Curve> {
    let between = shares.into_iter().filter(|arm| blocks.is_right(*arm));
    let arms: Vec<usize> = between.chain(once(whole)).collect();
    let ratios: Vec<Vec<Option<f64>>> =
        arms.iter().map(|arm| blocks.log_ratios(*arm, design.baseline, &design.primary)).collect::<Option<_>>()?;
    let is_complete = |block: &usize| ratios.iter().all(|ratios| ratios[*block].is_some());
    let complete: Vec<usize> = (0..blocks.numbers.len()).filter(is_complete).collect();
    let logs = ratios.iter().map(|ratios| complete.iter().filter_map(|block| ratios[*block]).collect());
    let logs: Vec<Vec<f64>> = logs.collect();
    let level = design.level();
    let centres: Vec<Centre> = logs.iter().map(|logs| signed_rank.test(logs, level)).collect::<Option<_>>()?;
    let whole_large = large_ratio(blocks, whole, block_size(design, &arms)?);
    let mut points = vec![end_point(design.baseline, 0.0)];
    for (at, arm) in arms.iter().enumerate() {
        let mut point = CurvePoint { change: change(&centres[at]), ..end_point(*arm, 1.0) };
        if *arm != whole {
            point = observed(design, blocks, point, whole_large);
            let gains: Vec<(f64, f64)> = logs[at]
                .iter()
                .zip(&logs[arms.len() - 1])
                .map(|(part, whole)| (part.exp_m1(), whole.exp_m1()))
                .collect();
            let ratio = point.change.ratio / centres[arms.len() - 1].estimate.exp_m1();
            point.gain = gain_share::interval(&gains, level, signed_rank).map(|(low, high)| Share {
                ratio,
                low: Some(low.min(ratio)),
                high: Some(high.max(ratio)),
            });
        }
        points.push(point);
    }
    let obstacle = obstacle(design, &points);
    let knots: Vec<Knot<'_>> = points[1..]
        .iter()
        .zip(&logs)
        .filter(|(point, _)| point.is_as_asked)
        .map(|(point, logs)| Knot { share: point.seen_ratio.unwrap_or(1.0), logs })
        .collect();
    let lines = Lines::new(knots, design, signed_rank).filter(|_| !matches!(obstacle, Some(Enough::TooFewBlocks)));
    let blocks = complete.len() as u32;
    Some(match lines {
        Some(lines) => {
            Curve { blocks, points, line: lines.points(), enough: obstacle.unwrap_or_else(|| lines.enough()) }
        }
        None => Curve { blocks, points, line: Vec::new(), enough: obstacle.unwrap_or(Enough::TooFewBlocks) },
    })
}

/// Why the gain cannot be divided among shares; `None` if it can.
fn obstacle(design: &Design, points: &[CurvePoint]) -> Option<Enough> {
    let whole = points.last()?.change;
    let (Some(low), Some(high)) = (whole.low, whole.high) else { return Some(Enough::TooFewBlocks) };
    let is_higher_better =
        design.metrics.iter().any(|metric| metric.name == design.primary && metric.direction == Direction::Higher);
    let gain_ratio = if is_higher_better { whole.ratio } else { -whole.ratio };
    let noise_ratio = (high - low) / 2.0;
    if gain_ratio < MIN_GAIN * noise_ratio || gain_ratio <= 0.0 {
        return Some(Enough::GainTooSmall { gain_ratio, noise_ratio });
    }
    let is_between = points[1..points.len() - 1].iter().any(|point| point.is_as_asked);
    (!is_between).then_some(Enough::NothingBetween)
}

/// An end of the curve. The share at an end is by definition as requested.
fn end_point(arm: usize, ratio: f64) -> CurvePoint {
    let change = Share { ratio: 0.0, low: Some(0.0), high: Some(0.0) };
    CurvePoint { arm, asked_ratio: ratio, seen_ratio: Some(ratio), is_as_asked: true, change, gain: None }
}

fn change(centre: &Centre) -> Share {
    Share {
        ratio: centre.estimate.exp_m1(),
        low: centre.interval.map(|(low, _)| low.exp_m1()),
        high: centre.interval.map(|(_, high)| high.exp_m1()),
    }
}

/// The size of the large pages in the arms' windows.
fn block_size(design: &Design, arms: &[usize]) -> Option<PageSize> {
    arms.iter().find_map(|arm| design.arms[*arm].policy.windows()).map(|windows| windows.block)
}

/// The point with the observed share of large memory.
fn observed(design: &Design, blocks: &Blocks<'_>, point: CurvePoint, whole_large: Option<f64>) -> CurvePoint {
    let Some(windows) = design.arms[point.arm].policy.windows() else { return point };
    let advised = median(&mut blocks.values(point.arm, names::ADVISED_BYTES)).unwrap_or(0.0);
    let asked_ratio = windows.share_of(advised as u64);
    let own = large_ratio(blocks, point.arm, windows.block);
    let seen_ratio = own.zip(whole_large).filter(|(_, whole)| *whole > 0.0).map(|(own, whole)| own / whole);
    CurvePoint {
        asked_ratio,
        seen_ratio,
        is_as_asked: seen_ratio.is_some_and(|seen| is_as_asked(seen, asked_ratio)),
        ..point
    }
}

fn is_as_asked(seen: f64, asked: f64) -> bool {
    seen > 0.0 && seen < 1.0 && (seen - asked).abs() <= MAX_SHARE_ERROR
}

/// The share of an arm's memory that leaves of this size map: the median over its trials.
fn large_ratio(blocks: &Blocks<'_>, arm: usize, size: PageSize) -> Option<f64> {
    let ratio = |record: &TrialRecord| {
        let all = record.census.concerned_bytes();
        let large = record.census.bytes_where(|mapping| mapping.is_concerned() && mapping.leaf == size);
        (all > 0).then(|| large as f64 / all as f64)
    };
    median(&mut blocks.trials(arm).filter_map(ratio).collect::<Vec<_>>())
}

/// A measured share that counts.
struct Knot<'a> {
    share: f64,
    /// Logarithms of the ratios to the baseline, by block.
    logs: &'a [f64],
}

/// The straight lines between measured shares. The first is the baseline, whose change is zero.
struct Lines {
    shares: Vec<f64>,
    changes: Vec<f64>,
    /// The changes of each resample.
    resampled: Vec<Vec<f64>>,
    /// Standard deviations of the changes.
    deviations: Vec<f64>,
    /// Standard normal quantile of the intervals.
    quantile: f64,
}

impl Lines {
    /// `None` without blocks.
    fn new(knots: Vec<Knot<'_>>, design: &Design, signed_rank: &mut SignedRank) -> Option<Lines> {
        let level = design.level();
        let blocks = knots.first()?.logs.len();
        let mut estimates = |chosen: &[usize]| -> Option<Vec<f64>> {
            let of_knot = |knot: &Knot<'_>| {
                let logs: Vec<f64> = chosen.iter().map(|block| knot.logs[*block]).collect();
                Some(signed_rank.test(&logs, level)?.estimate.exp_m1())
            };
            once(Some(0.0)).chain(knots.iter().map(of_knot)).collect()
        };
        let changes = estimates(&(0..blocks).collect::<Vec<_>>())?;
        let mut random = Pcg64::seed_from_u64(design.seed);
        let mut draw = || ((u128::from(random.next_u64()) * blocks as u128) >> 64) as usize;
        let mut resample = || estimates(&(0..blocks).map(|_| draw()).collect::<Vec<_>>());
        let resampled: Vec<Vec<f64>> = (0..RESAMPLES).map(|_| resample()).collect::<Option<_>>()?;
        let deviations = (0..changes.len()).map(|at| deviation(resampled.iter().map(|one| one[at]))).collect();
        let shares = once(0.0).chain(knots.iter().map(|knot| knot.share)).collect();
        Some(Lines { shares, changes, resampled, deviations, quantile: normal_quantile(1.0 - level / 2.0) })
    }

    /// The segment that contains a share, and the position in it from 0 to 1.
    fn locate(&self, share: f64) -> (usize, f64) {
        let segment = self.shares[1..self.shares.len() - 1].iter().take_while(|end| **end <= share).count();
        let (from, to) = (self.shares[segment], self.shares[segment + 1]);
        (segment, if to > from { ((share - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 })
    }

    fn change_at(&self, changes: &[f64], share: f64) -> f64 {
        let (segment, along) = self.locate(share);
        changes[segment] + along * (changes[segment + 1] - changes[segment])
    }

    /// The additional standard deviation of a share that was not measured: 0 for measured shares.
    fn unmeasured_deviation(&self, share: f64) -> f64 {
        let (segment, along) = self.locate(share);
        if along == 0.0 || along == 1.0 {
            return 0.0;
        }
        let noise = self.deviations[segment].max(self.deviations[segment + 1]);
        noise.hypot(LINE_ERROR)
    }

    fn grid() -> impl Iterator<Item = f64> {
        (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS))
    }

    fn points(&self) -> Vec<LinePoint> {
        let point = |share_ratio: f64| {
            let ratio = self.change_at(&self.changes, share_ratio);
            let of_blocks = deviation(self.resampled.iter().map(|changes| self.change_at(changes, share_ratio)));
            let half = self.quantile * of_blocks.hypot(self.unmeasured_deviation(share_ratio));
            LinePoint { share_ratio, change: Share { ratio, low: Some(ratio - half), high: Some(ratio + half) } }
        };
        Lines::grid().map(point).collect()
    }

    /// The smallest share that brings nine tenths of the gain.
    fn enough(&self) -> Enough {
        let last = self.changes.len() - 1;
        let part = |changes: &[f64], share: f64| self.change_at(changes, share) / changes[last];
        let bounds = |share: f64| {
            let of_blocks = deviation(self.resampled.iter().map(|changes| part(changes, share)));
            let half = self.quantile * of_blocks.hypot(self.unmeasured_deviation(share) / self.changes[last].abs());
            let estimate = part(&self.changes, share);
            (estimate - half, estimate + half)
        };
        let ratio = self.reached();
        let low = Lines::grid().find(|share| bounds(*share).1 >= ENOUGH).unwrap_or(1.0);
        let high = Lines::grid().find(|share| bounds(*share).0 >= ENOUGH).unwrap_or(1.0);
        Enough::Share { ratio, low_ratio: low.min(ratio), high_ratio: high.max(ratio) }
    }

    /// The smallest share at which the line reaches nine tenths of the gain.
    fn reached(&self) -> f64 {
        let parts: Vec<f64> = self.changes.iter().map(|change| change / self.changes[self.changes.len() - 1]).collect();
        let above = parts.iter().position(|part| *part >= ENOUGH).unwrap_or(parts.len() - 1).max(1);
        let along = (ENOUGH - parts[above - 1]) / (parts[above] - parts[above - 1]);
        self.shares[above - 1] + along * (self.shares[above] - self.shares[above - 1])
    }
}

fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(2) as f64;
    let mean = values.clone().sum::<f64>() / count;
    (values.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;
    use crate::trial::Arm;

    fn design() -> Design {
        let arm = |name: &str| Arm::of_policy(name, name.parse().unwrap());
        Design::new(vec![arm("base"), arm("thp")], 0, 7)
    }

    /// Log ratios of 16 blocks whose estimate is close to `ratio`.
    fn logs(random: &mut Random, ratio: f64, noise: f64) -> Vec<f64> {
        (0..16).map(|_| ratio.ln() + noise * random.normal()).collect()
    }

    fn lines(points: &[(f64, f64)], noise: f64) -> Lines {
        let mut random = Random::new();
        let logs: Vec<Vec<f64>> = points.iter().map(|(_, ratio)| logs(&mut random, *ratio, noise)).collect();
        let knots = points.iter().zip(&logs).map(|((share, _), logs)| Knot { share: *share, logs }).collect();
        Lines::new(knots, &design(), &mut SignedRank::default()).unwrap()
    }

    #[test]
    fn the_line_is_straight_between_measured_shares() {
        let lines = lines(&[(0.5, 0.6), (1.0, 0.5)], 1e-9);
        for (share, expected) in [(0.0, 0.0), (0.25, -0.2), (0.5, -0.4), (0.75, -0.45), (1.0, -0.5)] {
            assert!((lines.change_at(&lines.changes, share) - expected).abs() < 1e-6, "{share}");
        }
        // Nine tenths of 0.5 are 0.45.
        assert!((lines.reached() - 0.75).abs() < 1e-6);
        let Enough::Share { ratio, low_ratio, high_ratio } = lines.enough() else { panic!("no share") };
        assert!(low_ratio < ratio && ratio < high_ratio, "{low_ratio} {ratio} {high_ratio}");
        assert!(low_ratio >= 0.5 && high_ratio <= 1.0);
    }

    #[test]
    fn only_points_between_measured_shares_have_the_error_of_the_line() {
        let lines = lines(&[(0.5, 0.8), (1.0, 0.7)], 0.01);
        let half = |at: usize| {
            let LinePoint { change, .. } = lines.points()[at];
            (change.high.unwrap() - change.low.unwrap()) / 2.0
        };
        let error = LINE_ERROR * lines.quantile;
        assert!(half(0) == 0.0 && half(16) < error / 2.0 && half(32) < error / 2.0);
        assert!(half(8) > error && half(24) > error && half(24) < 1.5 * error, "{} {}", half(8), half(24));
    }

    #[test]
    fn intervals_between_measured_shares_hold_the_truth_at_their_confidence() {
        let mut random = Random::new();
        let tried = 200;
        let found = (0..tried).filter(|_| {
            // The true change at the share 3/4 differs from the line by the error of the line, and is measured with the noise
            // of 16 blocks.
            let truth = -0.25 + LINE_ERROR * random.normal() + 0.01 / 4.0 * random.normal();
            let lines = lines(&[(0.5, 0.8), (1.0, 0.7)], 0.01);
            let change = lines.points()[24].change;
            (change.low.unwrap()..change.high.unwrap()).contains(&truth)
        });
        // 96 % of the 200 are expected; 174 are six standard deviations fewer.
        assert!(found.count() >= 174);
    }

    #[test]
    fn a_share_is_as_asked_within_a_twentieth_of_the_memory() {
        assert!(is_as_asked(0.5, 0.5) && is_as_asked(0.46, 0.5) && is_as_asked(0.54, 0.5));
        assert!(!is_as_asked(0.44, 0.5) && !is_as_asked(0.56, 0.5) && !is_as_asked(0.2, 0.125));
        assert!(!is_as_asked(0.0, 0.03125) && !is_as_asked(1.0, 0.96875), "the ends are other arms");
    }

    #[test]
    fn a_gain_below_twice_its_noise_is_not_divided() {
        let points = |ratio: f64, half: f64| {
            let whole = Share { ratio, low: Some(ratio - half), high: Some(ratio + half) };
            vec![end_point(0, 0.0), end_point(2, 0.5), CurvePoint { change: whole, ..end_point(1, 1.0) }]
        };
        assert_eq!(obstacle(&design(), &points(-0.2, 0.05)), None);
        for (ratio, half) in [(-0.2, 0.11), (0.2, 0.05)] {
            assert!(matches!(obstacle(&design(), &points(ratio, half)), Some(Enough::GainTooSmall { .. })), "{ratio}");
        }
        let mut without = points(-0.2, 0.05);
        without[1].is_as_asked = false;
        assert_eq!(obstacle(&design(), &without), Some(Enough::NothingBetween));
    }
}
