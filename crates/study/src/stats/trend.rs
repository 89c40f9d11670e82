//! Whether a metric drifts with time: the Theil-Sen slope of its logarithms over the blocks, and the Mann-Kendall test of it.

use serde::Serialize;

use super::blocks::Blocks;
use super::median::median;
use super::normal;
use crate::comparison::Comparison;

/// Minimum number of blocks for a trend.
const MIN_BLOCKS: usize = 8;

/// The trend of a metric over the blocks of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// The last value relative to the first, by the slope.
    pub ratio: f64,
    /// Probability that chance alone shows a trend at least as clear.
    pub p_value: f64,
}

impl Trend {
    /// The trend of the primary metric under the baseline, which only time changes; `None` with fewer than eight blocks
    /// that count.
    pub fn of(comparison: &Comparison) -> Option<Trend> {
        let analysis = comparison.analysis.as_ref()?;
        let design = &comparison.design;
        let blocks = Blocks::new(design, &comparison.trials, &comparison.admissions);
        Trend::of_points(&blocks.logs(design.baseline, &analysis.primary))
    }

    /// The trend of logarithms, each with its block number.
    pub(super) fn of_points(points: &[(u32, f64)]) -> Option<Trend> {
        if points.len() < MIN_BLOCKS {
            return None;
        }
        let mut slopes = Vec::new();
        let mut score = 0.0;
        for (at, (block, log)) in points.iter().enumerate() {
            for (later_block, later) in &points[at + 1..] {
                slopes.push((later - log) / f64::from(later_block - block));
                score += if later > log {
                    1.0
                } else if later < log {
                    -1.0
                } else {
                    0.0
                };
            }
        }
        let n = points.len() as f64;
        let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
        let p_value = 2.0 * normal::cumulative(-(f64::abs(score) - 1.0).max(0.0) / deviation);
        let change = median(&mut slopes)? * f64::from(points[points.len() - 1].0 - points[0].0);
        Some(Trend { ratio: change.exp(), p_value: p_value.min(1.0) })
    }
}
