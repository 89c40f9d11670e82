//! Whether a metric moves with time: Theil and Sen's slope of its logarithms over the blocks, and Mann and Kendall's test
//! of it.

use serde::Serialize;

use super::blocks::Blocks;
use super::median::median;
use super::normal;
use crate::comparison::Comparison;

/// Blocks before which drift is not looked for.
const LEAST_BLOCKS: usize = 8;

/// How a metric moved over the blocks of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Its last value against its first, by the slope, as a ratio.
    pub ratio: f64,
    /// How often chance alone would show as clear a trend.
    pub p_value: f64,
}

impl Trend {
    /// How the metric that decides moved under the baseline, which nothing changes but time; `None` with fewer than eight
    /// blocks that count.
    pub fn of(comparison: &Comparison) -> Option<Trend> {
        let analysis = comparison.analysis.as_ref()?;
        let design = &comparison.design;
        let blocks = Blocks::new(design, &comparison.trials, &comparison.admissions);
        Trend::of_points(&blocks.logs(design.baseline, &analysis.primary))
    }

    /// The trend of logarithms, each with the number of its block.
    pub(super) fn of_points(points: &[(u32, f64)]) -> Option<Trend> {
        if points.len() < LEAST_BLOCKS {
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
