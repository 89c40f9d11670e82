//! The ratio of two figures measured in pairs.

use super::signed_rank::SignedRank;

/// The ratio of pairs of positive figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    /// Hodges-Lehmann estimate of the ratio, computed on logarithms.
    pub ratio: f64,
    /// Its interval, from the signed-rank test; absent with too few pairs.
    pub interval: Option<(f64, f64)>,
}

/// The ratio of `figures` to `baselines`, pair by pair, with its interval at `confidence` (for example 0.95). `None`
/// without pairs; pairs without a finite logarithm are ignored.
pub fn paired_ratio(figures: &[f64], baselines: &[f64], confidence: f64) -> Option<PairedRatio> {
    let logs = figures.iter().zip(baselines).map(|(figure, baseline)| (figure / baseline).ln());
    let logs: Vec<f64> = logs.filter(|log| log.is_finite()).collect();
    let centre = SignedRank::default().test(&logs, 1.0 - confidence)?;
    let interval = centre.interval.map(|(low, high)| (low.exp(), high.exp()));
    Some(PairedRatio { ratio: centre.estimate.exp(), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_in_its_interval() {
        let baselines = [10.0, 11.0, 9.0, 10.5, 9.5, 10.0, 12.0, 8.0];
        let figures: Vec<f64> =
            baselines.iter().zip([0.50, 0.52, 0.48, 0.51, 0.49, 0.5, 0.53, 0.47]).map(|(b, r)| b * r).collect();
        let found = paired_ratio(&figures, &baselines, 0.95).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!(
            (found.ratio - 0.5).abs() < 0.01 && low > 0.47 && low < found.ratio && found.ratio < high && high < 0.53
        );
    }

    #[test]
    fn few_pairs_have_no_interval_and_no_pairs_have_no_ratio() {
        assert_eq!(paired_ratio(&[1.0, 1.0], &[2.0, 2.0], 0.95), Some(PairedRatio { ratio: 0.5, interval: None }));
        assert_eq!(paired_ratio(&[], &[], 0.95), None);
        assert_eq!(paired_ratio(&[0.0], &[1.0], 0.95), None);
    }
}
