//! The ratio of two samples of the same figure that are not from the same blocks.

use super::paired::PairedRatio;
use super::rank_sum::{Stratum, test};

/// The ratio of `figures` to `baselines`, each paired with every other (Hodges-Lehmann, on logarithms), with its interval at
/// `confidence` by the rank-sum test. The ratio includes every other change between the two samples. `None` if either is empty;
/// values without a finite logarithm are ignored.
pub fn unpaired_ratio(figures: &[f64], baselines: &[f64], confidence: f64) -> Option<PairedRatio> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).filter(|log| log.is_finite()).collect();
    let centre = test(&[Stratum { one: logs(figures), other: logs(baselines) }], 1.0 - confidence)?;
    let interval = centre.interval.map(|(low, high)| (low.exp(), high.exp()));
    Some(PairedRatio { ratio: centre.estimate.exp(), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_other_sizes_are_compared_and_few_have_no_interval() {
        let found = unpaired_ratio(&[1.1, 1.12, 1.08, 1.11, 1.09], &[1.0, 1.01, 0.99, 1.02], 0.95).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!((found.ratio - 1.095).abs() < 0.01 && low > 1.05 && high < 1.15, "{found:?}");
        assert_eq!(unpaired_ratio(&[2.0], &[1.0], 0.95), Some(PairedRatio { ratio: 2.0, interval: None }));
        assert_eq!(unpaired_ratio(&[], &[1.0], 0.95), None);
        assert_eq!(unpaired_ratio(&[0.0], &[1.0], 0.95), None);
    }
}
