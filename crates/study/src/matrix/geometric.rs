//! One figure for many workloads: the geometric mean of their ratios, with Student's interval of the mean logarithm.
//!
//! The workloads are treated as a sample of similar programs, so the interval comes from the differences between them;
//! it includes the noise of each. It says nothing about programs unlike all of them.

use crate::stats::Effect;

/// A geometric mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometric {
    /// Number of ratios.
    pub of: u32,
    /// The mean.
    pub ratio: f64,
    /// Bounds of its interval; absent with fewer than two ratios.
    pub interval: Option<(f64, f64)>,
}

impl Geometric {
    /// As a change against the baseline.
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
    let interval = (logs.len() > 1).then(|| {
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = error * quantile(1.0 - (1.0 - confidence) / 2.0, logs.len() as u32 - 1);
        ((mean - half).exp(), (mean + half).exp())
    });
    Some(Geometric { of: logs.len() as u32, ratio: mean.exp(), interval })
}

/// Quantile `p` of Student's distribution, for `0.5 < p < 1`, by bisection.
fn quantile(p: f64, degrees: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if cumulative(middle, degrees) < p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Cumulative probability at `t`, for `t` above 0 (Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
fn cumulative(t: f64, degrees: u32) -> f64 {
    let angle = (t / f64::from(degrees).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let (mut term, mut sum) = (if is_odd { cosine } else { 1.0 }, 0.0);
    for k in 1..=degrees / 2 {
        sum += term;
        let of = f64::from(2 * k);
        term *= cosine * cosine * if is_odd { of / (of + 1.0) } else { (of - 1.0) / of };
    }
    let within = if is_odd { 2.0 / std::f64::consts::PI * (angle + sine * sum) } else { sine * sum };
    (1.0 + within) / 2.0
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    /// Cumulative probability at `t` by summing the density.
    fn slow(t: f64, degrees: u32) -> f64 {
        let n = f64::from(degrees);
        let density = |x: f64| (1.0 + x * x / n).powf(-(n + 1.0) / 2.0);
        let steps = 200_000;
        let sum =
            |to: f64| (0..steps).map(|at| density((f64::from(at) + 0.5) / f64::from(steps) * to)).sum::<f64>() * to;
        // The tail falls as a power: from three degrees of freedom on, values beyond 4000 are negligible.
        0.5 + 0.5 * sum(t) / sum(4000.0)
    }

    #[test]
    fn quantiles_are_the_published_ones() {
        // Handbook of Mathematical Functions, table 26.10, 97.5 %.
        for (degrees, t) in [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)] {
            assert!((quantile(0.975, degrees) - t).abs() < 6e-4, "{degrees}");
        }
        for degrees in [3, 4, 9, 16] {
            assert!((cumulative(1.7, degrees) - slow(1.7, degrees)).abs() < 1e-3, "{degrees}");
        }
    }

    #[test]
    fn it_is_the_root_of_the_product() {
        let mean = geometric(&[0.5, 2.0, 0.8], 0.95).unwrap();
        assert!((mean.ratio - 0.8f64.powf(1.0 / 3.0)).abs() < 1e-12);
        let (low, high) = mean.interval.unwrap();
        assert!(low < mean.ratio && mean.ratio < high);
        assert_eq!(geometric(&[0.9], 0.95).unwrap().interval, None);
        assert_eq!(geometric(&[], 0.95), None);
        assert_eq!(geometric(&[1.0, 0.0], 0.95), None);
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut random = Pcg64::seed_from_u64(testing::seed());
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        // The sum of twelve uniform numbers is nearly normal.
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let held = (0..2000).filter(|_| {
            let ratios: Vec<f64> = (0..5).map(|_| (0.1 + 0.05 * normal()).exp()).collect();
            let (low, high) = geometric(&ratios, 0.95).unwrap().interval.unwrap();
            low.ln() <= 0.1 && 0.1 <= high.ln()
        });
        // 1900 are expected; 40 is four standard deviations.
        let held = held.count();
        assert!((1860..=1940).contains(&held), "{held}");
    }
}
