//! The null distribution of a counting statistic.

use super::normal;

/// Distribution of a statistic with values 0, 1, 2, ...
pub(crate) enum Distribution {
    /// Cumulative probabilities of 0, 1, 2, ...
    Exact(Vec<f64>),
    /// Normal approximation with continuity correction, used when the exact distribution would be long.
    Normal { mean: f64, deviation: f64 },
}

impl Distribution {
    /// The distribution in which 0, 1, 2, ... have these probabilities.
    pub fn exact(mut probability: Vec<f64>) -> Distribution {
        let mut total = 0.0;
        for value in &mut probability {
            total += *value;
            *value = total;
        }
        Distribution::Exact(probability)
    }

    /// Cumulative probability at `value`.
    pub fn at_most(&self, value: usize) -> f64 {
        match self {
            Distribution::Exact(cumulative) => cumulative.get(value).copied().unwrap_or(1.0),
            Distribution::Normal { mean, deviation } => normal::cumulative((value as f64 + 0.5 - mean) / deviation),
        }
    }

    /// The largest value whose cumulative probability is at most `probability`.
    pub fn largest_within(&self, probability: f64) -> Option<usize> {
        let guess = match self {
            Distribution::Exact(cumulative) => cumulative.partition_point(|value| *value <= probability),
            Distribution::Normal { mean, deviation } => {
                (mean + deviation * normal::quantile(probability) + 0.5).max(0.0) as usize
            }
        };
        guess.checked_sub(1)
    }
}
