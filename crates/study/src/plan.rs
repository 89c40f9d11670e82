//! The plan of a comparison: randomised complete blocks. Each block runs every arm once, in a random order that the seed
//! determines.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::comparison::{Design, Khugepaged};
use crate::metric::{Metric, names};
use crate::trial::Arm;

impl Design {
    /// Default of the minimum number of counted blocks. With 8 or more, a single outlier cannot decide the outcome.
    pub const MIN_BLOCKS: u32 = 8;
    /// Default of the maximum number of counted blocks.
    pub const MAX_BLOCKS: u32 = 60;
    /// Default of the precision at which a comparison stops: the half width of the interval, as a ratio.
    pub const PRECISION_RATIO: f64 = 0.01;
    /// Default of the practical-equivalence band, as a ratio: smaller changes do not matter.
    pub const BAND_RATIO: f64 = 0.01;
    /// Default of the confidence of the intervals.
    pub const CONFIDENCE: f64 = 0.95;

    /// The significance level of every test and interval, as a share of `1 - confidence`.
    ///
    /// It is below 1 to compensate for stopping on precision. A comparison stops when its interval is narrow, which happens
    /// slightly more often with a sample that varies too little by chance. In simulations, this adds a quarter to the errors
    /// (docs/evidence/calibration.md).
    pub const SPENT_RATIO: f64 = 0.8;

    /// The significance level of every test and interval: `1 - confidence`, multiplied by [`Design::SPENT_RATIO`].
    pub fn level(&self) -> f64 {
        (1.0 - self.confidence) * Design::SPENT_RATIO
    }

    /// The default design: wall time is the primary metric, every metric of a Linux host is observed, and there is no time limit.
    pub fn new(arms: Vec<Arm>, baseline: usize, seed: u64) -> Design {
        Design {
            arms,
            baseline,
            metrics: Metric::of_every_trial(),
            primary: names::WALL_S.to_string(),
            min_blocks: Design::MIN_BLOCKS,
            max_blocks: Design::MAX_BLOCKS,
            max_time_s: None,
            trial_time_s: None,
            precision_ratio: Design::PRECISION_RATIO,
            band_ratio: Design::BAND_RATIO,
            confidence: Design::CONFIDENCE,
            seed,
            prove_all: false,
            khugepaged: Khugepaged::AsIs,
            fragmented: None,
            own_session: None,
            contention: None,
        }
    }
}

/// The order in which block `block` runs the arms: a permutation of `0..arms`. All permutations are equally likely. A seed gives
/// the same permutation on every machine.
///
/// `arms` is the number of all arms of the design. The caller removes those that do not run in this block from the order. So the
/// order of the others does not depend on which arms are removed.
pub fn order(seed: u64, block: u32, arms: usize) -> Vec<usize> {
    let mut random = Pcg64::seed_from_u64(seed ^ u64::from(block).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut order: Vec<usize> = (0..arms).collect();
    for last in (1..arms).rev() {
        order.swap(last, below(&mut random, last + 1));
    }
    order
}

/// A random number below `bound`. It is the high half of a product, so that it is the same on machines with another size of
/// `usize`.
fn below(random: &mut Pcg64, bound: usize) -> usize {
    ((u128::from(random.next_u64()) * bound as u128) >> 64) as usize
}

/// Minimum number of blocks before a comparison may stop, with `compared` arms in addition to the baseline.
///
/// The smallest p value that `n` blocks can give one arm is 2^(1-n), if the ratios of all blocks are on the same side of 1. The
/// correction for `compared` arms multiplies it by at most that number. While the product exceeds the significance level, no
/// difference can be significant.
pub fn min_blocks_to_stop(design: &Design, compared: usize) -> u32 {
    design.min_blocks.max(conclusive_blocks(design, compared)).min(design.max_blocks)
}

/// Minimum number of blocks with which an arm has an interval: the number with which a single compared arm can be significant.
pub fn interval_blocks(design: &Design) -> u32 {
    conclusive_blocks(design, 1)
}

/// Minimum number of blocks with which one of `compared` arms can be significant.
fn conclusive_blocks(design: &Design, compared: usize) -> u32 {
    let can_be_significant = |blocks: &u32| compared as f64 * 0.5f64.powi(*blocks as i32 - 1) <= design.level();
    (1..=64).find(can_be_significant).unwrap_or(64)
}

/// Why a design cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DesignError {
    /// The index of the baseline is not the index of an arm.
    #[error("the baseline is arm number {baseline}, but there are only {arms} arms (counted from 0)")]
    Baseline {
        /// The index in the design.
        baseline: usize,
        arms: usize,
    },
    /// The primary metric is not a metric of the design.
    #[error("the primary metric {primary:?} is not measured here; measured are: {known}")]
    Primary {
        /// The name in the design.
        primary: String,
        /// Names of the measured metrics.
        known: String,
    },
    /// The minimum number of blocks is 0, or exceeds the maximum.
    #[error("expected 1 <= minimum blocks <= maximum blocks, found {min} and {max}")]
    Blocks {
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// A number of the design is out of range.
    #[error("expected {name} to be {expected}, found {found}")]
    Range {
        /// The name of the number in the message.
        name: &'static str,
        /// The allowed range.
        expected: &'static str,
        /// The number in the design.
        found: f64,
    },
}

/// Checks that a comparison can be run by this design.
pub fn check(design: &Design) -> Result<(), DesignError> {
    if design.baseline >= design.arms.len() {
        return Err(DesignError::Baseline { baseline: design.baseline, arms: design.arms.len() });
    }
    if !design.metrics.iter().any(|metric| metric.name == design.primary) {
        let known: Vec<&str> = design.metrics.iter().map(|metric| metric.name.as_str()).collect();
        return Err(DesignError::Primary { primary: design.primary.clone(), known: known.join(", ") });
    }
    if design.min_blocks == 0 || design.min_blocks > design.max_blocks {
        return Err(DesignError::Blocks { min: design.min_blocks, max: design.max_blocks });
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let (max_time_s, trial_time_s) = (design.max_time_s.unwrap_or(1.0), design.trial_time_s.unwrap_or(1.0));
    let ranges = [
        (positive(design.precision_ratio), "the precision", "a ratio above 0", design.precision_ratio),
        (positive(design.band_ratio), "the practical band", "a ratio above 0", design.band_ratio),
        ((0.5..1.0).contains(&design.confidence), "the confidence", "from 0.5 to below 1", design.confidence),
        (positive(max_time_s), "the time limit in seconds", "above 0", max_time_s),
        (positive(trial_time_s), "the time limit of a trial in seconds", "above 0", trial_time_s),
    ];
    match ranges.into_iter().find(|range| !range.0) {
        Some((_, name, expected, found)) => Err(DesignError::Range { name, expected, found }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design() -> Design {
        let arm = |name: &str| Arm::of_policy(name, name.parse().unwrap());
        Design::new(vec![arm("default"), arm("thp")], 0, 1)
    }

    #[test]
    fn the_order_is_the_same_on_every_machine() {
        let orders: Vec<Vec<usize>> = (0..3).map(|block| order(1, block, 5)).collect();
        assert_eq!(orders, [[2, 0, 1, 4, 3], [4, 0, 2, 3, 1], [3, 0, 1, 4, 2]]);
    }

    #[test]
    fn every_order_is_as_likely_as_any_other() {
        let mut seen = std::collections::BTreeMap::new();
        for block in 0..6000 {
            *seen.entry(order(7, block, 3)).or_insert(0u32) += 1;
        }
        // Chi-square over 6 orders: 20.5 is its 99.9 % point with 5 degrees of freedom.
        let chi_square: f64 = seen.values().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
        assert_eq!(seen.len(), 6);
        assert!(chi_square < 20.5, "{seen:?}");
    }

    #[test]
    fn more_arms_need_more_blocks_for_a_conclusion() {
        let design = design();
        let min: Vec<u32> = [1, 5, 6, 10, 11].map(|compared| min_blocks_to_stop(&design, compared)).to_vec();
        assert_eq!(min, [8, 8, 9, 9, 10]);
    }

    #[test]
    fn an_impossible_design_is_refused_with_its_reason() {
        let with = |change: fn(&mut Design)| {
            let mut design = design();
            change(&mut design);
            check(&design).map_err(|error| error.to_string())
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert!(with(|design| design.baseline = 2).unwrap_err().contains("only 2 arms"));
        assert!(with(|design| design.primary = "speed".into()).unwrap_err().contains("wall_s"));
        assert!(with(|design| design.max_blocks = 3).unwrap_err().contains("found 8 and 3"));
        assert!(with(|design| design.precision_ratio = f64::NAN).unwrap_err().contains("NaN"));
        assert!(with(|design| design.confidence = 1.0).unwrap_err().contains("found 1"));
    }
}
