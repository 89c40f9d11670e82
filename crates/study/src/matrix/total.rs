//! Summary of all rows of a machine for one policy.

use super::geometric::{Geometric, geometric};
use super::row::{Cell, Row, Standing, inverted};
use super::trade::Trade;
use super::wins::{Race, Wins, wins};
use crate::comparison::Design;
use crate::metric::{Direction, Provenance};
use crate::stats::Effect;

/// Summary of the rows of a machine for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// Name of the machine.
    pub machine: String,
    /// The provenance of its figures.
    pub provenance: Provenance,
    /// Name of the policy.
    pub policy: String,
    /// The conclusion: that of the row if only one makes a claim; if several do, from the interval of their mean. If
    /// none does, the reason given by the first row that knows it.
    pub standing: Standing,
    /// The primary metric of all rows, and the direction in which it improves; absent if rows have different ones.
    pub metric: Option<(String, Direction)>,
    /// Mean of the cost against the baseline; absent for the baseline.
    pub mean: Option<Geometric>,
    /// The largest cost ratio, with its workload.
    pub worst: Option<(f64, String)>,
    /// How often it came out ahead.
    pub wins: Wins,
    /// Its memory cost and its speed.
    pub trade: Option<Trade>,
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
            standing: standing(rows, at, mean.as_ref()),
            metric: metric(costs.iter().map(|(_, row)| *row)),
            mean,
            worst: worst.map(|(cost, row)| (cost.ratio, row.workload.clone())),
            wins: wins(&races, at, Design::CONFIDENCE),
            trade: None,
        })
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

/// The geometric mean of a policy's cost over rows that make a claim about it, throughput inverted. A single row
/// contributes its own interval. A model's rows have none: they contain no noise.
pub(super) fn mean(rows: &[&Row], policy: &str) -> Option<Geometric> {
    let costs = costs(rows, policy);
    let ratios: Vec<f64> = costs.iter().map(|(cost, _)| cost.ratio).collect();
    let mean = geometric(&ratios, Design::CONFIDENCE)?;
    let interval = match &costs[..] {
        _ if costs.iter().any(|(_, row)| row.provenance == Provenance::Modelled) => None,
        [(cost, _)] => cost.low.zip(cost.high),
        _ => mean.interval,
    };
    Some(Geometric { interval, ..mean })
}

fn metric<'a>(mut rows: impl Iterator<Item = &'a Row>) -> Option<(String, Direction)> {
    let first = rows.next()?;
    let is_same = |row: &Row| row.metric == first.metric && row.direction == first.direction;
    rows.all(is_same).then(|| (first.metric.clone(), first.direction))
}

fn standing(rows: &[&Row], at: usize, mean: Option<&Geometric>) -> Standing {
    let cells: Vec<&Cell> = rows.iter().map(|row| &row.cells[at]).collect();
    let claims: Vec<&&Cell> = cells.iter().filter(|cell| cell.has_claim()).collect();
    if let [one] = claims[..] {
        return one.standing.clone();
    }
    match mean {
        None => unclaimed(&cells),
        Some(_) if claims.iter().any(|cell| cell.standing == Standing::Modelled) => Standing::Modelled,
        Some(mean) => match mean.interval {
            Some((_, high)) if high < 1.0 => Standing::Better,
            Some((low, _)) if low > 1.0 => Standing::Worse,
            _ => Standing::Undecided,
        },
    }
}

/// Why no row makes a claim.
fn unclaimed(cells: &[&Cell]) -> Standing {
    let first = |is: fn(&Standing) -> bool| cells.iter().map(|cell| &cell.standing).find(|standing| is(standing));
    let known = first(|standing| *standing == Standing::Baseline)
        .or_else(|| first(|standing| *standing == Standing::NotHeld))
        .or_else(|| first(|standing| *standing == Standing::WithinTracerCost))
        .or_else(|| first(|_| true));
    known.cloned().unwrap_or_else(|| Standing::None { why: "no row has it".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, metric: &str, standing: Standing, (low, high): (f64, f64)) -> Row {
        let policies = ["base".to_owned(), "thp".to_owned()];
        let mut row = Row { metric: metric.into(), ..Row::without(name, "m", &policies, "nothing") };
        if standing == Standing::Modelled {
            row.provenance = Provenance::Modelled;
        }
        row.cells[0].standing = Standing::Baseline;
        row.cells[1].standing = standing;
        let effect =
            Effect { blocks: 9, ratio: (low * high).sqrt(), low: Some(low), high: Some(high), p_adjusted: None };
        row.cells[1].effects.insert(metric.into(), effect);
        row
    }

    fn of(rows: &[Row]) -> Total {
        Total::of(&rows.iter().collect::<Vec<_>>(), 1, "thp").unwrap()
    }

    #[test]
    fn one_row_brings_its_own_interval_and_what_it_says() {
        let total = of(&[row("a", "wall_s", Standing::Undecided, (0.84, 1.63))]);
        assert_eq!(total.mean.unwrap().interval, Some((0.84, 1.63)));
        assert_eq!(total.standing, Standing::Undecided);
        // The interval of a mean of two comes from their difference.
        let both = [row("a", "wall_s", Standing::Better, (0.7, 0.8)), row("b", "wall_s", Standing::Worse, (1.1, 1.3))];
        let total = of(&both);
        assert!(total.mean.unwrap().interval.unwrap().1 > 1.3);
        assert_eq!(total.standing, Standing::Undecided);
    }

    #[test]
    fn a_model_has_no_interval() {
        let rows = ["a", "b"].map(|name| row(name, "walks", Standing::Modelled, (0.0965, 0.0965)));
        let total = of(&rows);
        assert_eq!((total.mean.unwrap().interval, total.standing), (None, Standing::Modelled));
        assert_eq!(of(&rows[..1]).mean.unwrap().interval, None);
    }

    #[test]
    fn a_change_is_one_of_the_metric_that_all_rows_have() {
        let rate = |name| Row { direction: Direction::Higher, ..row(name, "get_per_s", Standing::Better, (1.1, 1.3)) };
        let total = of(&[rate("a")]);
        assert!(total.mean.unwrap().ratio < 1.0, "as cost");
        let change = total.change().unwrap();
        assert!(change.low.unwrap() > 1.09 && change.high.unwrap() < 1.31, "{change:?}");
        let mixed = of(&[rate("a"), row("b", "wall_s", Standing::Better, (0.7, 0.8))]);
        assert_eq!(mixed.metric, None);
        assert!(mixed.change().unwrap().ratio < 1.0);
    }

    #[test]
    fn where_nothing_is_claimed_it_says_why() {
        let mut rows = [
            Row::without("a", "m", &["base".to_owned(), "thp".to_owned()], "not run"),
            row("b", "wall_s", Standing::NotHeld, (0.7, 0.8)),
        ];
        let total = of(&rows);
        assert_eq!((total.mean, total.standing), (None, Standing::NotHeld));
        rows[1].cells[1].standing = Standing::None { why: "later".into() };
        assert_eq!(of(&rows).standing, Standing::None { why: "not run".into() });
    }
}
