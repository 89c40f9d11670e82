//! Answers whether the programs that lose the most TLB misses also gain the most time: computes Spearman's rank correlation
//! over workloads between the ratio of page walks and the ratio of cost.
//!
//! Time is measured. Walks are counted by the host in the same trials, or computed by a model machine for the same
//! workload; the two sources are kept apart and named. The interval is Fisher's, with the variance of Bonett and Wright
//! (Psychometrika 65, 2000): `(1 + r^2 / 2) / (n - 3)`. The workloads are treated as a sample of similar programs.

use super::row::{Cell, Row};
use super::{Matrix, level};
use study::metric::{Provenance, names};
use study::stats::normal_quantile;

/// The metric of page walks in rows of a model.
const MODELLED_WALKS: &str = "walks";
/// Minimum number of workloads for a correlation.
const MIN_WORKLOADS: usize = 4;
/// Minimum number of workloads for an interval.
const MIN_FOR_INTERVAL: usize = 6;

/// The correlation between saved walks and saved time under a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlation {
    pub policy: String,
    /// The host on which time was measured.
    pub host: String,
    /// The model machine that counted the walks; `None` if the host itself counted them.
    pub machine: Option<String>,
    /// Number of workloads.
    pub of: u32,
    /// Spearman's coefficient, -1 to 1: 1 if workloads that save more walks always save more time.
    pub rank: f64,
    /// Bounds of its interval; absent with few workloads, and if the coefficient is 1 or -1.
    pub interval: Option<(f64, f64)>,
}

/// The correlations of every policy, host and source of walks with enough workloads.
pub fn correlations(matrix: &Matrix) -> Vec<Correlation> {
    let mut all = Vec::new();
    for host in machines(matrix, false) {
        let sources = std::iter::once(None).chain(machines(matrix, true).into_iter().map(Some));
        for (machine, (at, policy)) in
            sources.flat_map(|machine| matrix.policies.iter().enumerate().map(move |policy| (machine, policy)))
        {
            let (walks, costs): (Vec<f64>, Vec<f64>) = pairs(matrix, host, machine, at).into_iter().unzip();
            let Some(rank) = spearman(&walks, &costs).filter(|_| walks.len() >= MIN_WORKLOADS) else { continue };
            let (policy, host, machine) = (policy.clone(), host.to_owned(), machine.map(str::to_owned));
            all.push(Correlation {
                policy,
                host,
                machine,
                of: walks.len() as u32,
                rank,
                interval: interval(rank, walks.len()),
            });
        }
    }
    all
}

/// The distinct machines of a matrix, in the order of its rows.
fn machines(matrix: &Matrix, is_modelled: bool) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for row in matrix.rows.iter().filter(|row| (row.provenance == Provenance::Modelled) == is_modelled) {
        if !all.contains(&row.machine.as_str()) {
            all.push(&row.machine);
        }
    }
    all
}

/// The ratio of walks and the ratio of cost, for each workload that has both.
fn pairs(matrix: &Matrix, host: &str, machine: Option<&str>, at: usize) -> Vec<(f64, f64)> {
    let measured = matrix.rows.iter().filter(|row| row.provenance != Provenance::Modelled && row.machine == host);
    let pair = |row: &Row| {
        let cell = &row.cells[at];
        let cost = row.cost_ratio(cell).filter(|_| cell.has_claim())?;
        let walks = match machine {
            None => ratio(cell, names::DTLB_WALKS)?,
            Some(machine) => {
                let is_own = |one: &&Row| {
                    one.provenance == Provenance::Modelled && one.machine == machine && one.workload == row.workload
                };
                ratio(&matrix.rows.iter().find(is_own)?.cells[at], MODELLED_WALKS)?
            }
        };
        Some((walks, cost))
    };
    measured.filter_map(pair).collect()
}

fn ratio(cell: &Cell, metric: &str) -> Option<f64> {
    cell.effects.get(metric).map(|effect| effect.ratio)
}

/// Pearson's coefficient of the ranks; `None` if all values of one side are equal.
fn spearman(one: &[f64], other: &[f64]) -> Option<f64> {
    let (one, other) = (ranks(one), ranks(other));
    // The mean of ranks from 1 is the same on both sides, ties or not.
    let mean = (one.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let scale = (product(&one, &one) * product(&other, &other)).sqrt();
    (scale > 0.0).then(|| (product(&one, &other) / scale).clamp(-1.0, 1.0))
}

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn interval(rank: f64, of: usize) -> Option<(f64, f64)> {
    if of < MIN_FOR_INTERVAL || rank.abs() >= 1.0 {
        return None;
    }
    let error = ((1.0 + rank * rank / 2.0) / (of as f64 - 3.0)).sqrt();
    let half = error * normal_quantile(1.0 - level() / 2.0);
    Some(((rank.atanh() - half).tanh(), (rank.atanh() + half).tanh()))
}

#[cfg(test)]
mod tests {
    use super::super::row::Conclusion;
    use super::*;
    use study::stats::Effect;

    #[test]
    fn ties_share_a_rank_and_the_coefficient_is_that_of_the_textbook() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        // Without ties: 1 - 6 * sum of d^2 / (n * (n^2 - 1)), here with differences 1, 1, 0, 1, 1.
        let rank = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 1.0, 3.0, 5.0, 4.0]).unwrap();
        assert!((rank - (1.0 - 6.0 * 4.0 / 120.0)).abs() < 1e-12, "{rank}");
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(interval(0.5, 5), None);
        let (low, high) = interval(0.8, 12).unwrap();
        assert!(low > 0.2 && low < 0.8 && high > 0.8 && high < 1.0, "{low} {high}");
    }

    #[test]
    fn correlates_walks_of_a_model_with_the_time_of_a_host() {
        let policies = ["base".to_owned(), "thp".to_owned()];
        let row = |name: &str, machine: &str, metric: &str, ratio: f64, provenance| {
            let mut row = Row { provenance, metric: metric.into(), ..Row::without(name, machine, &policies, "") };
            row.cells[0].conclusion = Conclusion::Baseline;
            row.cells[1].conclusion = Conclusion::Better;
            let effect = Effect { blocks: 9, ratio, low: None, high: None, p_adjusted: None };
            row.cells[1].effects.insert(metric.into(), effect);
            row
        };
        let rows = |count: usize| {
            let both = (0..count).flat_map(|at| {
                let (name, part) = (format!("w{at}"), at as f64 / 10.0);
                [
                    row(&name, "a host", names::WALL_S, 0.5 + part, Provenance::Measured),
                    row(&name, "cortex-a57", MODELLED_WALKS, part * part, Provenance::Modelled),
                ]
            });
            Matrix::of(&policies, "base", both.collect(), &[])
        };
        let found = correlations(&rows(5));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].machine.as_deref(), found[0].of, found[0].interval), (Some("cortex-a57"), 5, None));
        assert!((found[0].rank - 1.0).abs() < 1e-12);
        assert!(correlations(&rows(3)).is_empty(), "three workloads are too few");
    }
}
