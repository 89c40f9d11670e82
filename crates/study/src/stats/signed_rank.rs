//! The signed-rank test of one sample of differences, the interval that inverts it, and the Hodges-Lehmann estimate.
//!
//! All three are computed from the Walsh averages, the means of all pairs of differences (each also paired with
//! itself): the estimate is their median, the number of averages above 0 is Wilcoxon's statistic, and the bounds of the
//! interval are two of the averages. So the interval contains 0 exactly when the test does not reject.

use std::collections::BTreeMap;

use super::distribution::Distribution;
use super::median::median;
use crate::result::Effect;

/// Maximum number of differences for the exact distribution. For more differences, the distribution is the normal approximation
/// with continuity correction, whose error is then less than a thousandth of the Walsh averages.
const MAX_EXACT: usize = 100;

/// The estimated centre of a sample of differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Centre {
    /// Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Interval at the requested confidence; absent with too few differences.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p value for a centre at 0. Differences of 0 count as evidence for a centre at 0.
    pub p: f64,
}

impl Effect {
    /// The effect for the centre of the log ratios of `blocks` blocks, without a p value.
    pub(super) fn of(blocks: usize, centre: &Centre) -> Effect {
        Effect {
            blocks: blocks as u32,
            ratio: centre.estimate.exp(),
            low: centre.interval.map(|(low, _)| low.exp()),
            high: centre.interval.map(|(_, high)| high.exp()),
            p_adjusted: None,
        }
    }
}

/// Distributions of the statistic by sample size, cached because every metric and arm uses the same ones.
#[derive(Default)]
pub(crate) struct SignedRank {
    by_size: BTreeMap<usize, Distribution>,
}

impl SignedRank {
    /// Tests `differences` at confidence `1 - alpha`; `None` without differences.
    pub fn test(&mut self, differences: &[f64], alpha: f64) -> Option<Centre> {
        let n = differences.len();
        let mut walsh = walsh_averages(differences);
        let last = walsh.len().checked_sub(1)?;
        let distribution = self.by_size.entry(n).or_insert_with(|| distribution(n));
        let not_above = walsh.iter().filter(|average| **average <= 0.0).count();
        let not_below = walsh.iter().filter(|average| **average >= 0.0).count();
        let p = (2.0 * distribution.at_most(not_above.min(not_below))).min(1.0);
        let interval = distribution
            .largest_within(alpha / 2.0)
            .map(|rank| (nth_smallest(&mut walsh, rank), nth_smallest(&mut walsh, last - rank)));
        let estimate = (nth_smallest(&mut walsh, last / 2) + nth_smallest(&mut walsh, last.div_ceil(2))) / 2.0;
        Some(Centre { estimate, interval, p })
    }

    /// As [`SignedRank::test`], but the interval also contains that of the sample's median where the median is outside: the differences
    /// are then not symmetric about one centre, which the signed-rank test assumes.
    pub fn cautious_test(&mut self, differences: &[f64], alpha: f64) -> Option<Centre> {
        let centre = self.test(differences, alpha)?;
        let mut sorted = differences.to_vec();
        let (Some((low, high)), Some(median)) = (centre.interval, median(&mut sorted)) else { return Some(centre) };
        if (low..=high).contains(&median) {
            return Some(centre);
        }
        let of_median = sign_test(&sorted, alpha);
        let interval = of_median.interval.map(|(least, most)| (least.min(low), most.max(high)));
        let contains_zero = interval.is_none_or(|(low, high)| low <= 0.0 && high >= 0.0);
        let p = if contains_zero && centre.p.max(of_median.p) <= alpha { 1.0 } else { centre.p.max(of_median.p) };
        Some(Centre { interval, p, ..centre })
    }

    /// The largest number of Walsh averages of `n` differences on one side of a value at which the test rejects it as the centre,
    /// at confidence `1 - alpha`; `None` if no number does.
    pub fn largest_rejected(&mut self, n: usize, alpha: f64) -> Option<usize> {
        self.by_size.entry(n).or_insert_with(|| distribution(n)).largest_within(alpha / 2.0)
    }
}

/// The sign test of sorted differences: an interval between two of them for their median, and a p value for a median of 0.
fn sign_test(sorted: &[f64], alpha: f64) -> Centre {
    let n = sorted.len();
    let distribution = signs(n);
    let not_above = sorted.iter().filter(|difference| **difference <= 0.0).count();
    let not_below = sorted.iter().filter(|difference| **difference >= 0.0).count();
    let p = (2.0 * distribution.at_most(not_above.min(not_below))).min(1.0);
    let interval = distribution.largest_within(alpha / 2.0).map(|rank| (sorted[rank], sorted[n - 1 - rank]));
    Centre { estimate: sorted[n / 2], interval, p }
}

/// Distribution of the number of positive signs among `n`, if both signs are equally likely.
fn signs(n: usize) -> Distribution {
    if n > MAX_EXACT {
        return Distribution::Normal { mean: n as f64 / 2.0, deviation: (n as f64).sqrt() / 2.0 };
    }
    let mut probability = vec![0.5f64.powi(n as i32); n + 1];
    for at in 1..=n {
        probability[at] = probability[at - 1] * (n + 1 - at) as f64 / at as f64;
    }
    Distribution::exact(probability)
}

fn walsh_averages(differences: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (at, one) in differences.iter().enumerate() {
        averages.extend(differences[at..].iter().map(|two| (one + two) / 2.0));
    }
    averages
}

fn nth_smallest(values: &mut [f64], n: usize) -> f64 {
    *values.select_nth_unstable_by(n, f64::total_cmp).1
}

/// Distribution of Wilcoxon's statistic for differences symmetric about 0: the sum of those ranks from 1 to n that a
/// fair coin picks.
fn distribution(n: usize) -> Distribution {
    if n <= MAX_EXACT {
        return Distribution::exact(rank_sums(n));
    }
    normal(n)
}

fn normal(n: usize) -> Distribution {
    let n = n as f64;
    Distribution::Normal { mean: n * (n + 1.0) / 4.0, deviation: (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt() }
}

/// Probability of each sum. Adds one rank after the other: with rank r, a sum s is reached from s without it or from
/// s - r with it.
fn rank_sums(n: usize) -> Vec<f64> {
    let mut probability = vec![0.0; n * (n + 1) / 2 + 1];
    probability[0] = 1.0;
    let mut largest = 0;
    for rank in 1..=n {
        largest += rank;
        for sum in (0..=largest).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = (probability[sum] + with) / 2.0;
        }
    }
    probability
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn test(differences: &[f64]) -> Centre {
        SignedRank::default().test(differences, 0.05).unwrap()
    }

    #[test]
    fn the_exact_distribution_is_that_of_all_choices_of_ranks() {
        for n in 1..=12usize {
            let mut sums = vec![0u32; n * (n + 1) / 2 + 1];
            for choice in 0..1usize << n {
                let sum: usize = (0..n).filter(|bit| choice >> bit & 1 == 1).map(|bit| bit + 1).sum();
                sums[sum] += 1;
            }
            let distribution = distribution(n);
            let mut below = 0;
            for (sum, count) in sums.iter().enumerate() {
                below += count;
                assert!((distribution.at_most(sum) - f64::from(below) / f64::from(1u32 << n)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn the_normal_approximation_takes_over_without_a_step() {
        for probability in [0.005, 0.025, 0.05] {
            let exact = Distribution::exact(rank_sums(MAX_EXACT)).largest_within(probability).unwrap();
            let normal = normal(MAX_EXACT).largest_within(probability).unwrap();
            // Of 5050 Walsh averages, the approximation picks one that is at most four ranks off.
            assert!(exact.abs_diff(normal) <= 4, "{exact} {normal}");
        }
    }

    #[test]
    fn critical_values_are_the_published_ones() {
        // The critical values of Wilcoxon's table, two-sided 5 %: n = 6..12 and 30, 50.
        for (n, critical) in [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (11, 10), (12, 13), (30, 137), (50, 434)] {
            assert_eq!(distribution(n).largest_within(0.025), Some(critical), "{n}");
        }
    }

    #[test]
    fn fewer_than_six_differences_have_no_interval_at_95_percent() {
        assert_eq!(test(&[0.1, 0.11, 0.12, 0.13, 0.14]).interval, None);
        assert_eq!(test(&[0.1, 0.11, 0.12, 0.13, 0.14, 0.15]).interval, Some((0.1, 0.15)));
        assert_eq!(SignedRank::default().test(&[], 0.05), None);
    }

    #[test]
    fn an_asymmetric_sample_is_not_given_one_narrow_centre() {
        // Half of the blocks are a little slower, the other half much faster, as system time with two modes is.
        let mut differences: Vec<f64> = (0..20).map(|at| 0.02 + 0.002 * f64::from(at)).collect();
        differences.extend((0..20).map(|at| -0.6 - 0.02 * f64::from(at)));
        let (one, cautious) = (test(&differences), SignedRank::default().cautious_test(&differences, 0.05).unwrap());
        assert!(one.p < 0.01 && one.interval.unwrap().1 < 0.0, "{one:?}");
        assert!(cautious.p > 0.05 && cautious.interval.unwrap().1 > 0.0, "{cautious:?}");
        assert_eq!(cautious.estimate, one.estimate);
    }

    #[test]
    fn the_sign_test_has_the_published_critical_values() {
        // Of n differences, at most this many may have the rarer sign: two-sided 5 %.
        for (n, most) in [(6, 0), (9, 1), (12, 2), (20, 5), (40, 13)] {
            assert_eq!(signs(n).largest_within(0.025), Some(most), "{n}");
        }
    }

    #[test]
    fn no_difference_at_all_is_no_evidence() {
        assert_eq!(test(&[0.0; 12]), Centre { estimate: 0.0, interval: Some((0.0, 0.0)), p: 1.0 });
    }

    fn brute_force_estimate(differences: &[f64]) -> f64 {
        let mut averages = Vec::new();
        for i in 0..differences.len() {
            for j in 0..=i {
                averages.push((differences[i] + differences[j]) / 2.0);
            }
        }
        averages.sort_by(f64::total_cmp);
        let middle = averages.len() / 2;
        if averages.len() % 2 == 1 { averages[middle] } else { (averages[middle - 1] + averages[middle]) / 2.0 }
    }

    /// p value by enumeration: how often random signs give a statistic at least as extreme.
    fn enumerated_p(differences: &[f64]) -> f64 {
        let mut by_size = differences.to_vec();
        by_size.sort_by(|one, two| one.abs().total_cmp(&two.abs()));
        let n = by_size.len();
        let negative: usize = (0..n).filter(|at| by_size[*at] < 0.0).map(|at| at + 1).sum();
        let positive = n * (n + 1) / 2 - negative;
        let statistic = |choice: &usize| (0..n).filter(|bit| *choice >> bit & 1 == 1).map(|bit| bit + 1).sum::<usize>();
        let as_far =
            (0..1usize << n).map(|choice| statistic(&choice)).filter(|sum| *sum <= negative.min(positive)).count();
        (2.0 * as_far as f64 / (1u64 << n) as f64).min(1.0)
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn the_estimate_is_the_median_of_all_pair_means(differences in prop::collection::vec(-1.0..1.0f64, 1..40)) {
            prop_assert_eq!(test(&differences).estimate, brute_force_estimate(&differences));
        }

        #[test]
        fn the_p_value_is_that_of_all_choices_of_signs(differences in prop::collection::vec(-1.0..1.0f64, 1..=10)) {
            prop_assert!((test(&differences).p - enumerated_p(&differences)).abs() < 1e-12);
        }

        #[test]
        fn the_interval_holds_zero_exactly_when_the_test_does_not_reject(
            differences in prop::collection::vec(prop_oneof![Just(0.0), -0.2..1.0f64], 6..120)
        ) {
            let centre = test(&differences);
            let (low, high) = centre.interval.unwrap();
            prop_assert!(low <= centre.estimate && centre.estimate <= high);
            prop_assert_eq!(low <= 0.0 && 0.0 <= high, centre.p > 0.05);
        }

        #[test]
        fn a_cautious_interval_is_never_narrower_and_fits_its_p_value(
            differences in prop::collection::vec(prop_oneof![Just(0.0), -0.2..1.0f64, -9.0..0.0f64], 6..120)
        ) {
            let (one, cautious) = (test(&differences), SignedRank::default().cautious_test(&differences, 0.05).unwrap());
            let ((low, high), (least, most)) = (one.interval.unwrap(), cautious.interval.unwrap());
            prop_assert!(least <= low && high <= most && cautious.p >= one.p);
            prop_assert_eq!(least <= 0.0 && 0.0 <= most, cautious.p > 0.05);
        }

        #[test]
        fn a_shift_moves_estimate_and_interval_equally(
            differences in prop::collection::vec(-1.0..1.0f64, 6..60), shift in -1.0..1.0f64
        ) {
            let shifted: Vec<f64> = differences.iter().map(|difference| difference + shift).collect();
            let (before, after) = (test(&differences), test(&shifted));
            prop_assert!((after.estimate - before.estimate - shift).abs() < 1e-12);
            prop_assert!((after.interval.unwrap().1 - before.interval.unwrap().1 - shift).abs() < 1e-12);
        }
    }
}
