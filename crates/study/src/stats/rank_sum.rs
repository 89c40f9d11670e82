//! The stratified rank-sum test of two unpaired samples, the interval that inverts it, and the Hodges-Lehmann estimate.
//!
//! All three are computed from the differences of all pairs within a stratum, one value from each sample: the estimate
//! is their median, the number of differences above 0 is the Mann-Whitney statistic summed over the strata, and the
//! bounds of the interval are two of the differences.

use super::distribution::Distribution;
use super::median::median;
use super::signed_rank::Centre;

/// Maximum number of pairs for the exact distribution; for more, a normal approximation is used.
const EXACT_PAIRS: usize = 2500;

/// Values of both samples on one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stratum {
    /// The sample that is compared.
    pub one: Vec<f64>,
    /// The sample with which it is compared.
    pub other: Vec<f64>,
}

impl Stratum {
    fn pairs(&self) -> usize {
        self.one.len() * self.other.len()
    }
}

/// The shift of `one` against `other`, at confidence `1 - alpha`; `None` if no stratum has values of both.
pub(crate) fn test(strata: &[Stratum], alpha: f64) -> Option<Centre> {
    let strata: Vec<&Stratum> = strata.iter().filter(|stratum| stratum.pairs() > 0).collect();
    let pairs = |stratum: &&Stratum| {
        let differences = stratum.one.iter().flat_map(|one| stratum.other.iter().map(move |other| one - other));
        differences.collect::<Vec<f64>>()
    };
    let mut differences: Vec<f64> = strata.iter().flat_map(pairs).collect();
    let estimate = median(&mut differences)?; // sorts them
    let not_above = differences.iter().filter(|difference| **difference <= 0.0).count();
    let not_below = differences.iter().filter(|difference| **difference >= 0.0).count();
    let sizes: Vec<(usize, usize)> = strata.iter().map(|stratum| (stratum.one.len(), stratum.other.len())).collect();
    let distribution = distribution(&sizes);
    let p = (2.0 * distribution.at_most(not_above.min(not_below))).min(1.0);
    let rank = distribution.largest_within(alpha / 2.0);
    let interval = rank.map(|rank| (differences[rank], differences[differences.len() - 1 - rank]));
    Some(Centre { estimate, interval, p })
}

/// The smallest p value possible for samples of these sizes.
pub(crate) fn smallest_p(sizes: &[(usize, usize)]) -> f64 {
    (2.0 * distribution(sizes).at_most(0)).min(1.0)
}

/// Null distribution of the statistic.
fn distribution(sizes: &[(usize, usize)]) -> Distribution {
    let pairs = |(one, other): &(usize, usize)| one * other;
    if sizes.iter().map(pairs).sum::<usize>() > EXACT_PAIRS {
        return normal(sizes);
    }
    let samples = sizes.iter().map(|(one, other)| mann_whitney(*one, *other));
    Distribution::exact(samples.fold(vec![1.0], |all, next| convolved(&all, &next)))
}

fn normal(sizes: &[(usize, usize)]) -> Distribution {
    let moments = sizes.iter().map(|(one, other)| {
        let (one, other) = (*one as f64, *other as f64);
        (one * other / 2.0, one * other * (one + other + 1.0) / 12.0)
    });
    let (mean, variance) = moments.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Distribution::Normal { mean, deviation: f64::sqrt(variance) }
}

/// Probability of 0, 1, 2, ... pairs in which `one` is larger: the largest value of all belongs to `one` with
/// probability one / (one + other), and then exceeds all values of `other`.
fn mann_whitney(one: usize, other: usize) -> Vec<f64> {
    let mut by_other: Vec<Vec<f64>> = vec![vec![1.0]; other + 1];
    for ones in 1..=one {
        for others in 1..=other {
            let share = ones as f64 / (ones + others) as f64;
            let mut next = vec![0.0; ones * others + 1];
            // In `by_other`, the entry at `others` still belongs to `ones - 1`, and the entry at `others - 1` already belongs
            // to `ones`.
            by_other[others].iter().enumerate().for_each(|(count, value)| next[count + others] += share * value);
            by_other[others - 1].iter().enumerate().for_each(|(count, value)| next[count] += (1.0 - share) * value);
            by_other[others] = next;
        }
    }
    by_other.pop().unwrap_or_default()
}

fn convolved(one: &[f64], other: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; one.len() + other.len() - 1];
    for (at, value) in one.iter().enumerate() {
        other.iter().enumerate().for_each(|(offset, factor)| sum[at + offset] += value * factor);
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stratum(one: &[f64], other: &[f64]) -> Stratum {
        Stratum { one: one.to_vec(), other: other.to_vec() }
    }

    /// Enumerates all ways to choose which of the pooled values belong to `one`.
    fn enumerated(one: usize, other: usize) -> Vec<f64> {
        let all = one + other;
        let mut counts = vec![0.0; one * other + 1];
        for choice in (0..1u32 << all).filter(|choice| choice.count_ones() as usize == one) {
            let above = |at: usize| (0..at).filter(|lower| choice >> lower & 1 == 0).count();
            counts[(0..all).filter(|at| choice >> at & 1 == 1).map(above).sum::<usize>()] += 1.0;
        }
        let total: f64 = counts.iter().sum();
        counts.iter().map(|count| count / total).collect()
    }

    #[test]
    fn the_distribution_is_that_of_all_choices() {
        for (one, other) in [(1, 1), (1, 5), (3, 2), (4, 4), (5, 6)] {
            let found = mann_whitney(one, other);
            let expected = enumerated(one, other);
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().zip(&expected).all(|(one, two)| (one - two).abs() < 1e-12), "{one} {other}");
        }
    }

    /// Tables of Mann and Whitney: the largest statistic that is significant at 5 %, two-sided.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (one, other, critical) in [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23), (20, 20, 127)] {
            assert_eq!(distribution(&[(one, other)]).largest_within(0.025), Some(critical), "{one} {other}");
        }
        assert_eq!(distribution(&[(3, 3)]).largest_within(0.025), None, "three against three cannot be significant");
    }

    #[test]
    fn the_normal_distribution_continues_the_exact_one() {
        let sizes = [(40, 30), (20, 30)];
        let (exact, normal) = (distribution(&[(40, 30), (20, 30)][..1]), normal(&sizes[..1]));
        for count in [300, 450, 600] {
            assert!((exact.at_most(count) - normal.at_most(count)).abs() < 2e-3, "{count}");
        }
    }

    #[test]
    fn samples_are_compared_within_hosts() {
        // The second host takes twice as long. If the hosts were pooled, the samples of the arms would overlap.
        let strata = [stratum(&[1.1, 1.2, 1.15], &[1.0, 1.01, 1.02]), stratum(&[2.1, 2.2], &[2.0, 2.01])];
        let centre = test(&strata, 0.05).unwrap();
        assert!((centre.estimate - 0.12).abs() < 0.03 && centre.p < 0.05, "{centre:?}");
        assert!(centre.interval.unwrap().0 > 0.0);
        assert_eq!(test(&[stratum(&[1.0], &[]), stratum(&[], &[1.0])], 0.05), None);
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn the_interval_holds_zero_exactly_when_the_test_does_not_reject(
            one in prop::collection::vec(-0.5..1.0f64, 4..9), other in prop::collection::vec(-1.0..0.5f64, 4..9)
        ) {
            let centre = test(&[Stratum { one, other }], 0.05).unwrap();
            let (low, high) = centre.interval.unwrap();
            prop_assert!(low <= centre.estimate && centre.estimate <= high);
            prop_assert_eq!(low <= 0.0 && 0.0 <= high, centre.p > 0.05);
        }
    }
}
