//! One figure for many workloads: the geometric mean of their ratios, with Student's interval of the mean logarithm.
//!
//! The workloads are treated as a sample of similar programs, so the interval comes from the differences between them, which
//! include the noise of each. The interval says nothing about programs that are unlike all of these workloads.

use study::stats::{Effect, student_quantile};

/// Minimum number of workloads for an interval.
pub const MIN_WORKLOADS: usize = 6;

/// A geometric mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometric {
    /// Number of ratios.
    pub of: u32,
    /// The mean.
    pub ratio: f64,
    /// Bounds of its interval; absent with fewer than [`MIN_WORKLOADS`].
    pub interval: Option<(f64, f64)>,
}

impl Geometric {
    /// The mean as a change against the baseline.
    pub fn effect(&self) -> Effect {
        let (low, high) = self.interval.unzip();
        Effect { blocks: self.of, ratio: self.ratio, low, high, p_adjusted: None }
    }
}

/// The geometric mean of positive ratios, with an interval at this confidence; `None` without ratios.
pub fn geometric(ratios: &[f64], confidence: f64) -> Option<Geometric> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let count = logs.len() as f64;
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let interval = (logs.len() >= MIN_WORKLOADS).then(|| {
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = error * student_quantile(1.0 - (1.0 - confidence) / 2.0, logs.len() as u32 - 1);
        ((mean - half).exp(), (mean + half).exp())
    });
    Some(Geometric { of: logs.len() as u32, ratio: mean.exp(), interval })
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    #[test]
    fn the_mean_is_the_root_of_the_product() {
        let mean = geometric(&[0.5, 2.0, 0.8, 0.5, 2.0, 0.8], 0.95).unwrap();
        assert!((mean.ratio - 0.8f64.powf(1.0 / 3.0)).abs() < 1e-12);
        let (low, high) = mean.interval.unwrap();
        assert!(low < mean.ratio && mean.ratio < high);
        assert_eq!(geometric(&[0.9; 5], 0.95).unwrap().interval, None);
        assert_eq!(geometric(&[], 0.95), None);
        assert_eq!(geometric(&[1.0, 0.0], 0.95), None);
    }

    #[test]
    fn the_interval_holds_the_truth_at_its_confidence() {
        let mut random = Pcg64::seed_from_u64(testing::seed());
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // The sum of twelve uniform numbers is nearly normal.
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let held = (0..2000).filter(|_| {
            let ratios: Vec<f64> = (0..6).map(|_| (0.1 + 0.05 * normal()).exp()).collect();
            let (low, high) = geometric(&ratios, 0.95).unwrap().interval.unwrap();
            low.ln() <= 0.1 && 0.1 <= high.ln()
        });
        // 1900 are expected; 55 more or fewer are 5.6 standard deviations.
        let held = held.count();
        assert!((1845..=1955).contains(&held), "{held}");
    }
}
