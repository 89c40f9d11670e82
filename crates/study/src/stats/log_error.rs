//! The measuring error of a change, for the mean of the changes of several workloads.

use super::outcome::half_width;
use super::rank_sum::Stratum;
use super::student;
use crate::result::Effect;

/// The measuring error of the logarithm of a ratio, as a variance with its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogError {
    /// The square of the standard error.
    pub variance: f64,
    /// Degrees of freedom of this estimate.
    pub degrees: f64,
}

impl LogError {
    /// The error of a difference between boots, within hosts; `None` where a host has fewer than two boots of an arm.
    pub(crate) fn of_strata(strata: &[Stratum]) -> Option<LogError> {
        let of_host = |stratum: &Stratum| {
            let both = [LogError::of_sample(&stratum.one)?, LogError::of_sample(&stratum.other)?];
            // The variance of a difference is the sum of both variances, four times the variance of the mean of the two.
            LogError::of_mean(&both).map(|mean| LogError { variance: 4.0 * mean.variance, ..mean })
        };
        let of_hosts: Option<Vec<LogError>> = strata.iter().map(of_host).collect();
        LogError::of_mean(&of_hosts?)
    }

    /// The error of the mean of a sample; `None` with fewer than two values.
    pub fn of_sample(values: &[f64]) -> Option<LogError> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (values.len() > 1).then(|| LogError { variance: squares / (count - 1.0) / count, degrees: count - 1.0 })
    }

    /// The error that corresponds to the interval of a change at this confidence; `None` without an interval.
    pub fn of_interval(effect: &Effect, confidence: f64) -> Option<LogError> {
        let half = half_width(effect)?;
        let unit = LogError { variance: 1.0, degrees: f64::from(effect.blocks.saturating_sub(1).max(1)) };
        Some(LogError { variance: (half / unit.half_width(confidence)).powi(2), ..unit })
    }

    /// The error of the mean of independent changes, with the degrees of freedom by Welch and Satterthwaite; `None` without
    /// changes.
    pub fn of_mean(errors: &[LogError]) -> Option<LogError> {
        let sum: f64 = errors.iter().map(|error| error.variance).sum();
        let weighted: f64 = errors.iter().map(|error| error.variance.powi(2) / error.degrees).sum();
        let all_degrees: f64 = errors.iter().map(|error| error.degrees).sum();
        let degrees = if weighted > 0.0 { sum.powi(2) / weighted } else { all_degrees };
        let count = errors.len() as f64;
        (!errors.is_empty()).then(|| LogError { variance: sum / count.powi(2), degrees })
    }

    /// An upper bound of the error of the mean of changes that may share their errors, such as changes from the same boots.
    /// `None` without changes.
    pub fn of_shared_mean(errors: &[LogError]) -> Option<LogError> {
        let deviations: f64 = errors.iter().map(|error| error.variance.sqrt()).sum();
        let degrees = errors.iter().map(|error| error.degrees).reduce(f64::min)?;
        Some(LogError { variance: (deviations / errors.len() as f64).powi(2), degrees })
    }

    /// Half the width of the interval at this confidence, by Student's distribution.
    pub fn half_width(&self, confidence: f64) -> f64 {
        self.variance.sqrt() * self.quantile(confidence)
    }

    /// The half width of the interval in standard errors.
    pub fn quantile(&self, confidence: f64) -> f64 {
        student::quantile(1.0 - (1.0 - confidence) / 2.0, (self.degrees as u32).max(1))
    }
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;

    /// Noise with heavy tails: one run in ten is disturbed by six times the spread.
    fn disturbed(random: &mut Random) -> f64 {
        random.normal() * if random.below(10) == 0 { 6.0 } else { 1.0 }
    }

    #[test]
    fn sixteen_workloads_of_ten_blocks_have_the_half_width_of_theory() {
        let error = LogError { variance: 0.08f64.powi(2) / 10.0, degrees: 9.0 };
        let half = LogError::of_mean(&[error; 16]).unwrap().half_width(0.95);
        assert!((0.0120..0.0130).contains(&half), "{half}");
    }

    #[test]
    fn the_interval_holds_the_truth_at_its_confidence_or_more() {
        let mut random = Random::new();
        let mut missed = 0;
        for _ in 0..2000 {
            let mut centres = Vec::new();
            let mut errors = Vec::new();
            for workload in 0..6 {
                let spread = 0.02 * f64::from(1 + workload);
                let ratios: Vec<f64> = (0..8).map(|_| spread * disturbed(&mut random)).collect();
                centres.push(ratios.iter().sum::<f64>() / ratios.len() as f64);
                errors.extend(LogError::of_sample(&ratios));
            }
            let mean = centres.iter().sum::<f64>() / centres.len() as f64;
            missed += u32::from(mean.abs() > LogError::of_mean(&errors).unwrap().half_width(0.95));
        }
        // 100 misses are allowed. The limit adds five standard deviations of chance: a correct interval fails here once in 3
        // million tests.
        assert!(missed <= 150, "{missed}");
    }

    /// Three workloads in four boots each of two kernels. All noise comes from the boots.
    #[test]
    fn the_interval_over_workloads_of_the_same_boots_holds_the_truth_too() {
        let mut random = Random::new();
        let mut missed = [0, 0];
        for _ in 0..2000 {
            let boots = |random: &mut Random| -> Vec<f64> { (0..4).map(|_| 0.01 * random.normal()).collect() };
            let stratum = Stratum { one: boots(&mut random), other: boots(&mut random) };
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let change = mean(&stratum.one) - mean(&stratum.other);
            let errors = [LogError::of_strata(&[stratum]).unwrap(); 3];
            for (missed, error) in
                missed.iter_mut().zip([LogError::of_shared_mean(&errors), LogError::of_mean(&errors)])
            {
                *missed += u32::from(change.abs() > error.unwrap().half_width(0.95));
            }
        }
        // 100 misses are allowed, and 150 are five standard deviations of chance more.
        assert!(missed[0] <= 150, "{missed:?}");
        assert!(missed[1] > 300, "workloads of the same boots are not independent: {missed:?}");
    }

    #[test]
    fn a_difference_of_boots_has_the_errors_of_both() {
        let stratum = Stratum { one: vec![1.0, 1.2], other: vec![0.5, 0.9] };
        let error = LogError::of_strata(&[stratum]).unwrap();
        assert!((error.variance - (0.01 + 0.04)).abs() < 1e-12, "{error:?}");
        assert_eq!(LogError::of_strata(&[Stratum { one: vec![1.0], other: vec![1.0, 2.0] }]), None);
    }
}
