//! Computes the shares of policies in the largest mean gain over the same workloads: the gain of the best policy over the baseline, or
//! if no policy is shown to be better than the baseline, the gain of the baseline over base pages (or else over the worst policy).

use super::row::{Cell, Conclusion, Row};
use super::total::{Mean, Total, TotalShare};
use policy::{Granularity, Policy};
use study::comparison::Design;
use study::metric::Direction;
use study::stats::LogError;

/// Adds the shares of the largest gain to the totals of a machine. If no difference is shown, no policy has a share.
pub(super) fn add(totals: &mut [Total], rows: &[&Row], baseline: &str) {
    if let Some(best) = extreme(totals, &Conclusion::Better).cloned() {
        for total in totals.iter_mut().filter(|total| total.policy != best.policy) {
            let is_open =
                matches!(total.conclusion, Conclusion::Better | Conclusion::Equivalent | Conclusion::Undecided);
            let means = total.mean.zip(best.mean).filter(|_| is_open);
            let share = means.and_then(|means| of_best(means, (&total.policy, &best.policy), rows));
            total.gain_share = share.map(|share| share.named(&best.policy, None));
        }
    } else if let Some(worst) = base_pages(totals).or_else(|| extreme(totals, &Conclusion::Worse)).cloned() {
        for total in totals.iter_mut().filter(|total| total.policy != worst.policy && total.policy != baseline) {
            let means = total.mean.zip(worst.mean);
            let share = means.and_then(|means| of_baseline(means, (&total.policy, &worst.policy), rows));
            total.gain_share = share.map(|share| share.named(baseline, Some(&worst.policy)));
        }
    }
}

/// The policy with this conclusion whose mean is farthest from 1.
fn extreme<'a>(totals: &'a [Total], conclusion: &Conclusion) -> Option<&'a Total> {
    let distance = |total: &Total| total.mean.map_or(0.0, |mean| mean.ratio.ln().abs());
    let shown = totals.iter().filter(|total| total.conclusion == *conclusion);
    shown.max_by(|one, other| distance(one).total_cmp(&distance(other)))
}

/// Base pages, if they are shown to be worse. A policy that is selected by its name has an estimate without bias.
fn base_pages(totals: &[Total]) -> Option<&Total> {
    let is_base =
        |total: &&Total| total.policy.parse::<Policy>().is_ok_and(|policy| policy == Policy::plain(Granularity::Base));
    totals.iter().find(is_base).filter(|total| total.conclusion == Conclusion::Worse)
}

/// A difference of means of costs: its value, and its derivatives by the logarithms of both costs.
#[derive(Clone, Copy)]
struct Difference {
    value: f64,
    by_log: (f64, f64),
}

/// A share with its interval.
struct Share {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Share {
    fn named(self, of: &str, over: Option<&str>) -> TotalShare {
        let Share { ratio, low, high } = self;
        TotalShare { of: of.to_owned(), over: over.map(str::to_owned), ratio, low, high }
    }
}

/// The share of the best policy's gain over the baseline.
fn of_best((part, best): (Mean, Mean), policies: (&str, &str), rows: &[&Row]) -> Option<Share> {
    let whole = Difference { value: 1.0 - best.ratio, by_log: (0.0, -best.ratio) };
    let part_gain = Difference { value: 1.0 - part.ratio, by_log: (-part.ratio, 0.0) };
    share((part_gain, whole), [part.of, best.of], policies, rows)
}

/// The share of the baseline's gain over the worst policy.
fn of_baseline((part, worst): (Mean, Mean), policies: (&str, &str), rows: &[&Row]) -> Option<Share> {
    let whole = Difference { value: worst.ratio - 1.0, by_log: (0.0, worst.ratio) };
    let part_gain = Difference { value: worst.ratio - part.ratio, by_log: (-part.ratio, worst.ratio) };
    share((part_gain, whole), [part.of, worst.of], policies, rows)
}

/// The share by Fieller's theorem, from the measuring errors, stratified by workload. `None` if the interval is unbounded, if a
/// workload has too few blocks with both policies. A mean of too few workloads is no gain, and the comparison of a single workload
/// has the share.
fn share(
    (part, whole): (Difference, Difference),
    workloads: [u32; 2],
    (policy, other): (&str, &str),
    rows: &[&Row],
) -> Option<Share> {
    let pairs: Vec<Vec<(f64, f64)>> = rows.iter().filter_map(|row| pairs(row, policy, other)).collect();
    let count = pairs.len() as u32;
    if count < 2 || workloads != [count; 2] || pairs.iter().any(|pairs| pairs.len() < 2) {
        return None;
    }
    let error = |(by_one, by_other): (f64, f64)| {
        let value = |pair: &(f64, f64)| by_one * pair.0 + by_other * pair.1;
        let of_row = |pairs: &Vec<(f64, f64)>| LogError::of_sample(&pairs.iter().map(value).collect::<Vec<_>>());
        LogError::of_mean(&pairs.iter().map(of_row).collect::<Option<Vec<_>>>()?)
    };
    let (of_part, of_whole) = (error(part.by_log)?, error(whole.by_log)?);
    let of_both = error((part.by_log.0 + whole.by_log.0, part.by_log.1 + whole.by_log.1))?;
    let covariance = (of_both.variance - of_part.variance - of_whole.variance) / 2.0;
    let quantile = of_both.quantile(Design::CONFIDENCE);
    let (part, whole) = (part.value, whole.value);
    // The shares s with (part - s * whole)^2 <= quantile^2 * variance(part - s * whole).
    let square = whole.powi(2) - quantile.powi(2) * of_whole.variance;
    let linear = part * whole - quantile.powi(2) * covariance;
    let constant = part.powi(2) - quantile.powi(2) * of_part.variance;
    let root = (linear.powi(2) - square * constant).max(0.0).sqrt();
    let (low, high) = ((linear - root) / square, (linear + root) / square);
    (square > 0.0).then_some(Share { ratio: part / whole, low, high })
}

/// The logarithms of the costs of both policies, for each block that has both; `None` if one of the policies makes no claim.
fn pairs(row: &Row, policy: &str, other: &str) -> Option<Vec<(f64, f64)>> {
    let cell = |policy: &str| row.cells.iter().find(|cell| cell.policy == policy).filter(|cell| cell.has_claim());
    let sign = if row.direction == Direction::Higher { -1.0 } else { 1.0 };
    let logs = |cell: &Cell| cell.log_ratios.iter().map(|log| log.map(|log| sign * log)).collect::<Vec<_>>();
    let (part, whole) = (logs(cell(policy)?), logs(cell(other)?));
    Some(part.into_iter().zip(whole).filter_map(|(part, whole)| part.zip(whole)).collect())
}

#[cfg(test)]
mod tests {
    use testing::Random;

    use super::*;
    use crate::matrix::Matrix;
    use study::stats::Effect;

    /// A row of twelve blocks in which `mthp-64k` and `thp` have these mean logarithms.
    fn row(random: &mut Random, name: &str, means: (f64, f64), spread: f64) -> Row {
        let policies = ["base", "mthp-64k", "thp"].map(str::to_owned);
        let mut row = Row::without(name, "m", &policies, "nothing");
        row.cells[0].conclusion = Conclusion::Baseline;
        let baseline: Vec<f64> = (0..12).map(|_| random.normal()).collect();
        for (at, mean) in [(1, means.0), (2, means.1)] {
            let logs: Vec<f64> = baseline.iter().map(|base| mean + spread * (random.normal() - base)).collect();
            let ratio = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            let effect = Effect { blocks: 12, ratio, low: Some(ratio), high: Some(ratio), p_adjusted: Some(0.001) };
            row.cells[at].effects.insert(row.metric.clone(), effect);
            row.cells[at].conclusion = Conclusion::Undecided;
            row.cells[at].error = LogError::of_sample(&logs);
            row.cells[at].log_ratios = logs.into_iter().map(Some).collect();
        }
        row
    }

    fn share_of(rows: Vec<Row>) -> Option<TotalShare> {
        let policies = ["base", "mthp-64k", "thp"].map(str::to_owned);
        let matrix = Matrix::of(&policies, "base", rows, &[]);
        matrix.totals.into_iter().find(|total| total.policy == "mthp-64k").unwrap().gain_share
    }

    #[test]
    fn the_interval_holds_the_true_share_at_its_confidence() {
        let mut random = Random::new();
        let (part, whole) = ((1.0f64 - 0.06).ln(), (1.0f64 - 0.1).ln());
        let mut missed = 0;
        for _ in 0..1000 {
            let rows = (0..6).map(|at| row(&mut random, &at.to_string(), (part, whole), 0.03)).collect();
            let share = share_of(rows).unwrap();
            assert!(share.of == "thp" && share.low <= share.ratio && share.ratio <= share.high, "{share:?}");
            missed += u32::from(!(share.low..=share.high).contains(&0.6));
        }
        // 50 misses are expected; 90 are nearly six standard deviations more, 20 are four fewer.
        assert!((20..=90).contains(&missed), "{missed}");
    }

    /// With the best policy as baseline: the shares of its gain over the worst one.
    #[test]
    fn the_share_of_the_baseline_s_gain_has_its_confidence_too() {
        let mut random = Random::new();
        // Base costs 10 % more than the baseline, and `mthp-64k` 4 %: it brings 60 % of the gain over base.
        let (part, whole) = (1.04f64.ln(), 1.1f64.ln());
        let mut missed = 0;
        for _ in 0..1000 {
            let rows: Vec<Row> = (0..6).map(|at| row(&mut random, &at.to_string(), (part, whole), 0.03)).collect();
            let share = share_of(rows).unwrap();
            assert_eq!((share.of.as_str(), share.over.as_deref()), ("base", Some("thp")));
            missed += u32::from(!(share.low..=share.high).contains(&0.6));
        }
        // 50 misses are expected; 90 are nearly six standard deviations more, 20 are four fewer.
        assert!((20..=90).contains(&missed), "{missed}");
    }

    #[test]
    fn without_a_gain_or_with_other_workloads_there_is_no_share() {
        let mut random = Random::new();
        let mut rows: Vec<Row> = (0..6).map(|at| row(&mut random, &at.to_string(), (0.06, 0.1), 0.01)).collect();
        let imprecise = Some(LogError { variance: 1.0, degrees: 9.0 });
        rows.iter_mut().flat_map(|row| &mut row.cells).for_each(|cell| cell.error = imprecise);
        assert_eq!(share_of(rows.clone()), None, "no difference is shown");
        rows = (0..6).map(|at| row(&mut random, &at.to_string(), (-0.06, -0.1), 0.01)).collect();
        assert!(share_of(rows.clone()).is_some());
        assert_eq!(share_of(rows[..5].to_vec()), None, "no gain is shown over five workloads");
        assert_eq!(share_of(rows[..1].to_vec()), None, "the comparison has it");
        rows[0].cells[1].conclusion = Conclusion::WithinTracerCost;
        assert_eq!(share_of(rows), None, "the means are over other workloads");
    }
}
