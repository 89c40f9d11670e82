//! Summary of all rows of a machine for one policy.

use serde::Serialize;

use super::geometric::{MIN_WORKLOADS, geometric};
use super::row::{Cell, Conclusion, Row, inverted};
use super::trade::CostAndMemory;
use super::wins::{Race, Wins, wins};
use study::comparison::Design;
use study::metric::{Direction, Provenance};
use study::stats::{Effect, LogError};

/// Summary of the rows of a machine for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// Name of the machine.
    pub machine: String,
    /// The provenance of the rows' figures.
    pub provenance: Provenance,
    /// Name of the policy.
    pub policy: String,
    /// The conclusion. If one row makes a claim, it is the conclusion of that row. If six or more do, it follows from the
    /// interval of their mean over these workloads; with fewer, nothing is concluded from a mean. If none does, it is the first
    /// known reason.
    pub conclusion: Conclusion,
    /// Whether the policy was shown to be in force in every row that makes a claim.
    pub is_held: bool,
    /// The primary metric of all rows, and the direction in which it improves; absent if rows have different ones.
    pub metric: Option<(String, Direction)>,
    /// Mean of the cost against the baseline; absent for the baseline.
    pub mean: Option<Mean>,
    /// The largest cost ratio, with its workload.
    pub worst: Option<(f64, String)>,
    /// The policy's share of the largest gain of any policy, or if none gains, of the baseline's gain over the worst policy. Absent for
    /// the two policies of that gain, for a loss, and if the share is unknown.
    pub gain_share: Option<TotalShare>,
    /// How often the policy came out ahead.
    pub wins: Wins,
    /// The policy's memory cost and speed.
    pub trade: Option<CostAndMemory>,
}

/// A share of the gain of `of` over `over`: 0.6 means that a policy costs 6 % less than `over` if `of` costs 10 % less.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TotalShare {
    /// The policy with the largest gain.
    pub of: String,
    /// The policy over which that gain is; absent if it is the baseline.
    pub over: Option<String>,
    /// The ratio of the two reported gains.
    pub ratio: f64,
    /// Lower bound of its interval.
    #[serde(rename = "low_ratio")]
    pub low: f64,
    /// Upper bound of its interval.
    #[serde(rename = "high_ratio")]
    pub high: f64,
}

/// The mean change of several workloads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Number of workloads.
    pub of: u32,
    /// The geometric mean of their ratios.
    pub ratio: f64,
    /// Bounds of the mean over these workloads, from their measuring errors alone; absent if one of them has none, and with
    /// too few workloads ([`Mean::is_of_few`]). A single workload has the bounds of its row.
    pub these: Option<(f64, f64)>,
    /// Bounds of the mean over workloads like these, from the differences between them; absent with fewer than
    /// [`MIN_WORKLOADS`].
    pub like_these: Option<(f64, f64)>,
}

impl Mean {
    /// Whether it is the mean of several workloads, but of fewer than [`MIN_WORKLOADS`]: one of them can decide it, so it has no
    /// interval and supports no conclusion.
    pub fn is_of_few(&self) -> bool {
        (2..MIN_WORKLOADS as u32).contains(&self.of)
    }

    /// The mean as a change of these workloads against the baseline.
    pub fn effect(&self) -> Effect {
        let (low, high) = self.these.unzip();
        Effect { blocks: self.of, ratio: self.ratio, low, high, p_adjusted: None }
    }
}

impl Total {
    /// Summary of the rows of one machine for the policy at index `at`; `None` without rows.
    pub(super) fn of(rows: &[&Row], at: usize, policy: &str) -> Option<Total> {
        let first = rows.first()?;
        let costs = costs(rows, policy);
        let worst = costs.iter().max_by(|one, other| one.0.ratio.total_cmp(&other.0.ratio));
        let races: Vec<Race> = rows.iter().map(|row| row.race.clone()).collect();
        let mean = mean(rows, policy);
        Some(Total {
            machine: first.machine.clone(),
            provenance: first.provenance,
            policy: policy.to_owned(),
            conclusion: conclusion(rows, at, mean.as_ref()),
            is_held: rows.iter().map(|row| &row.cells[at]).all(|cell| cell.is_held || !cell.has_claim()),
            metric: metric(costs.iter().map(|(_, row)| *row)),
            mean,
            worst: worst.map(|(cost, row)| (cost.ratio, row.workload.clone())),
            gain_share: None,
            wins: wins(&races, at, Design::CONFIDENCE),
            trade: None,
        })
    }

    /// Whether the rows are several, but too few for a mean with an interval: then each row speaks for itself. A model's figures
    /// contain no noise and need no interval.
    pub fn has_too_few(&self) -> bool {
        self.conclusion != Conclusion::Modelled && self.mean.is_some_and(|mean| mean.is_of_few())
    }

    /// The mean with its bounds over workloads like these; `None` with too few workloads.
    pub fn like_these(&self) -> Option<Effect> {
        let mean = self.mean.filter(|mean| mean.like_these.is_some())?;
        Total { mean: Some(Mean { these: mean.like_these, ..mean }), ..self.clone() }.change()
    }

    /// The mean change of the primary metric if all rows have the same one; otherwise the mean change of the cost.
    pub fn change(&self) -> Option<Effect> {
        let cost = self.mean?.effect();
        match self.metric {
            Some((_, Direction::Higher)) => Some(inverted(&cost)),
            _ => Some(cost),
        }
    }
}

/// The costs of a policy in rows that make a claim about it.
fn costs<'a>(rows: &[&'a Row], policy: &str) -> Vec<(Effect, &'a Row)> {
    let cost = |row: &&'a Row| {
        let cell = row.cells.iter().find(|cell| cell.policy == policy).filter(|cell| cell.has_claim())?;
        Some((row.cost(cell)?, *row))
    };
    rows.iter().filter_map(cost).collect()
}

/// The geometric mean of a policy's cost over rows that make a claim about it, throughput inverted. A model's rows have no
/// interval: they contain no noise.
pub(super) fn mean(rows: &[&Row], policy: &str) -> Option<Mean> {
    let costs = costs(rows, policy);
    let ratios: Vec<f64> = costs.iter().map(|(cost, _)| cost.ratio).collect();
    let mean = geometric(&ratios, Design::CONFIDENCE)?;
    let own = Mean { of: mean.of, ratio: mean.ratio, these: None, like_these: None };
    if costs.iter().any(|(_, row)| row.provenance == Provenance::Modelled) {
        return Some(own);
    }
    if let [(cost, _)] = &costs[..] {
        return Some(Mean { these: cost.low.zip(cost.high), ..own });
    }
    if own.is_of_few() {
        return Some(own);
    }
    // A mean has no interval if one of its rows has none: with few boots, all rows may share an error.
    let error = |(cost, row): &(Effect, &Row)| {
        row.cells.iter().find(|cell| cell.policy == policy)?.error.filter(|_| cost.low.is_some())
    };
    let errors: Option<Vec<LogError>> = costs.iter().map(error).collect();
    let shares_boots = costs.iter().any(|(_, row)| row.shares_boots);
    let of_mean = if shares_boots { LogError::of_shared_mean } else { LogError::of_mean };
    let error = errors.and_then(|errors| of_mean(&errors));
    let around = |error: LogError| {
        let half = error.half_width(Design::CONFIDENCE).exp();
        (mean.ratio / half, mean.ratio * half)
    };
    Some(Mean { these: error.map(around), like_these: mean.interval, ..own })
}

fn metric<'a>(mut rows: impl Iterator<Item = &'a Row>) -> Option<(String, Direction)> {
    let first = rows.next()?;
    let is_same = |row: &Row| row.metric == first.metric && row.direction == first.direction;
    rows.all(is_same).then(|| (first.metric.clone(), first.direction))
}

/// The largest ratio that does not matter.
const BAND: f64 = 1.0 + Design::BAND_RATIO;

fn conclusion(rows: &[&Row], at: usize, mean: Option<&Mean>) -> Conclusion {
    let cells: Vec<&Cell> = rows.iter().map(|row| &row.cells[at]).collect();
    let claims: Vec<&&Cell> = cells.iter().filter(|cell| cell.has_claim()).collect();
    if let [one] = claims[..] {
        return one.conclusion.clone();
    }
    match mean {
        None => unclaimed(&cells),
        Some(_) if claims.iter().any(|cell| cell.conclusion == Conclusion::Modelled) => Conclusion::Modelled,
        Some(mean) => match mean.these {
            Some((low, high)) if low * BAND >= 1.0 && high <= BAND => Conclusion::Equivalent,
            Some((_, high)) if high < 1.0 => Conclusion::Better,
            Some((low, _)) if low > 1.0 => Conclusion::Worse,
            _ => Conclusion::Undecided,
        },
    }
}

/// Why no row makes a claim.
fn unclaimed(cells: &[&Cell]) -> Conclusion {
    let first =
        |is: fn(&Conclusion) -> bool| cells.iter().map(|cell| &cell.conclusion).find(|conclusion| is(conclusion));
    let known = first(|conclusion| *conclusion == Conclusion::Baseline)
        .or_else(|| first(|conclusion| *conclusion == Conclusion::WithinTracerCost))
        .or_else(|| first(|_| true));
    known.cloned().unwrap_or_else(|| Conclusion::None { why: "no row has it".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, metric: &str, conclusion: Conclusion, (low, high): (f64, f64)) -> Row {
        let policies = ["base".to_owned(), "thp".to_owned()];
        let mut row = Row { metric: metric.into(), ..Row::without(name, "m", &policies, "nothing") };
        if conclusion == Conclusion::Modelled {
            row.provenance = Provenance::Modelled;
        }
        row.cells[0].conclusion = Conclusion::Baseline;
        row.cells[1].conclusion = conclusion;
        let effect =
            Effect { blocks: 9, ratio: (low * high).sqrt(), low: Some(low), high: Some(high), p_adjusted: None };
        row.cells[1].effects.insert(metric.into(), effect);
        row
    }

    fn of(rows: &[Row]) -> Total {
        Total::of(&rows.iter().collect::<Vec<_>>(), 1, "thp").unwrap()
    }

    #[test]
    fn a_single_row_gives_its_interval_and_its_conclusion() {
        let total = of(&[row("a", "wall_s", Conclusion::Undecided, (0.84, 1.63))]);
        assert_eq!(total.mean.unwrap().these, Some((0.84, 1.63)));
        assert_eq!(total.conclusion, Conclusion::Undecided);
    }

    #[test]
    fn the_mean_of_several_rows_has_one_interval_from_errors_and_one_from_differences() {
        let of_rows = |count: usize, deviation: f64| {
            let bounds = |at: usize| if at.is_multiple_of(2) { (0.7, 0.8) } else { (1.1, 1.3) };
            let mut rows: Vec<Row> =
                (0..count).map(|at| row(&at.to_string(), "wall_s", Conclusion::Better, bounds(at))).collect();
            let error = LogError { variance: deviation * deviation, degrees: 9.0 };
            rows.iter_mut().for_each(|row| row.cells[1].error = Some(error));
            of(&rows)
        };
        let six = of_rows(6, 0.01);
        assert!(six.mean.unwrap().these.unwrap().1 < 0.97, "{six:?}");
        assert_eq!(six.conclusion, Conclusion::Better);
        assert_eq!(of_rows(6, 0.4).conclusion, Conclusion::Undecided);
        let mut rows: Vec<Row> =
            (0..6).map(|at| row(&at.to_string(), "wall_s", Conclusion::Better, (0.7, 0.8))).collect();
        let error = Some(LogError { variance: 1e-4, degrees: 9.0 });
        rows.iter_mut().for_each(|row| row.cells[1].error = error);
        assert!(of(&rows).mean.unwrap().these.is_some());
        rows[0].cells[1].effects.get_mut("wall_s").unwrap().low = None;
        assert_eq!(of(&rows).mean.unwrap().these, None, "a row has no interval");
        let like_these = of_rows(6, 0.01).mean.unwrap().like_these.unwrap();
        assert!(like_these.0 < 0.8 && like_these.1 > 1.1, "{like_these:?}");
    }

    #[test]
    fn the_mean_of_fewer_than_six_rows_has_no_interval_and_no_conclusion() {
        let error = Some(LogError { variance: 1e-6, degrees: 9.0 });
        for count in 2..6 {
            let mut rows: Vec<Row> =
                (0..count).map(|at| row(&at.to_string(), "wall_s", Conclusion::Better, (0.7, 0.8))).collect();
            rows.iter_mut().for_each(|row| row.cells[1].error = error);
            let total = of(&rows);
            let mean = total.mean.unwrap();
            assert!(mean.is_of_few() && (mean.these, mean.like_these) == (None, None), "{mean:?}");
            assert_eq!(total.conclusion, Conclusion::Undecided);
        }
    }

    #[test]
    fn a_model_has_no_interval() {
        let rows = ["a", "b"].map(|name| row(name, "walks", Conclusion::Modelled, (0.0965, 0.0965)));
        let total = of(&rows);
        assert_eq!((total.mean.unwrap().these, total.conclusion), (None, Conclusion::Modelled));
        assert_eq!(of(&rows[..1]).mean.unwrap().these, None);
    }

    #[test]
    fn the_change_is_that_of_the_metric_if_all_rows_have_the_same() {
        let rate =
            |name| Row { direction: Direction::Higher, ..row(name, "get_per_s", Conclusion::Better, (1.1, 1.3)) };
        let total = of(&[rate("a")]);
        assert!(total.mean.unwrap().ratio < 1.0, "as cost");
        let change = total.change().unwrap();
        assert!(change.low.unwrap() > 1.09 && change.high.unwrap() < 1.31, "{change:?}");
        let mixed = of(&[rate("a"), row("b", "wall_s", Conclusion::Better, (0.7, 0.8))]);
        assert_eq!(mixed.metric, None);
        assert!(mixed.change().unwrap().ratio < 1.0);
    }

    #[test]
    fn a_total_without_claims_has_a_reason() {
        let mut rows = [
            Row::without("a", "m", &["base".to_owned(), "thp".to_owned()], "not run"),
            row("b", "wall_s", Conclusion::WithinTracerCost, (0.7, 0.8)),
        ];
        let total = of(&rows);
        assert_eq!((total.mean, total.conclusion), (None, Conclusion::WithinTracerCost));
        rows[1].cells[1].conclusion = Conclusion::None { why: "later".into() };
        assert_eq!(of(&rows).conclusion, Conclusion::None { why: "not run".into() });
    }
}
