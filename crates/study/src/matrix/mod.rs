//! The matrix of a study: a row for each workload and machine, a cell for each policy, and what all rows say together.
//!
//! A cell is what its comparison says ([`crate::stats`]). Over workloads three things are said, for each machine by
//! itself, because measured and modelled figures, and those of two hosts, are never pooled: which changes are more than
//! chance among so many ([`discovery`]), the geometric mean ([`geometric()`]), and who wins how often ([`wins()`]).

mod beside;
pub mod boots;
mod claim;
pub mod discovery;
pub mod geometric;
mod origin;
mod row;
mod trade;
pub mod wins;

use serde::Serialize;

pub use beside::Beside;
pub use claim::Claim;
pub use origin::Origin;
pub use row::{Cell, Row, Standing};
pub use trade::Trade;

use crate::comparison::Design;
use crate::definition::{Measure, Published};
use crate::metric::Provenance;
use geometric::{Geometric, geometric};
use wins::{Race, Wins, wins};

/// The matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The policies, in the order of every row's cells.
    pub policies: Vec<String>,
    /// The one that the others are compared with.
    pub baseline: String,
    /// Every workload on every machine.
    pub rows: Vec<Row>,
    /// What the rows of a machine say of a policy.
    pub totals: Vec<Total>,
    /// Published figures beside what was found.
    pub published: Vec<Set>,
}

/// What the rows of a machine say of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// The machine.
    pub machine: String,
    /// Where its figures come from.
    pub provenance: Provenance,
    /// The policy.
    pub policy: String,
    /// Geometric mean of the cost against the baseline, throughput inverted; absent for the baseline.
    pub mean: Option<Geometric>,
    /// The largest cost ratio, with its workload.
    pub worst: Option<(f64, String)>,
    /// How often it came out in front.
    pub wins: Wins,
    /// What it costs in memory beside what it gains in speed.
    pub trade: Option<Trade>,
}

/// A published figure beside what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// The figure.
    pub published: Published,
    /// The machine it is set beside.
    pub machine: String,
    /// Where that one's figure comes from.
    pub provenance: Provenance,
    /// What was found: ratio, or share of wins, and its interval.
    pub found: Option<(f64, Option<(f64, f64)>)>,
    /// What that says.
    pub beside: Beside,
}

/// A machine and where its figures come from, as data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Ground {
    machine: String,
    is_modelled: bool,
}

impl Matrix {
    /// The matrix of these rows: corrected for many workloads, with what they say together.
    pub fn of(policies: &[String], baseline: &str, mut rows: Vec<Row>, published: &[Published]) -> Matrix {
        let mut grounds: Vec<Ground> = rows.iter().map(Ground::of).collect();
        let mut seen = std::collections::BTreeSet::new();
        grounds.retain(|ground| seen.insert(ground.clone()));
        for ground in &grounds {
            (0..policies.len()).for_each(|policy| correct(&mut rows, ground, policy));
        }
        let totals = grounds.iter().flat_map(|ground| {
            let rows: Vec<&Row> = rows.iter().filter(|row| Ground::of(row) == *ground).collect();
            let mut trades = trade::trades(&rows, policies.len());
            let total =
                |(at, policy): (usize, &String)| Some(Total { trade: trades[at].take(), ..total(&rows, at, policy)? });
            policies.iter().enumerate().filter_map(total).collect::<Vec<_>>()
        });
        let totals: Vec<Total> = totals.collect();
        let sets = grounds.iter().flat_map(|ground| {
            let (rows, totals) = (&rows, &totals);
            published.iter().filter_map(move |one| set(one, ground, rows, totals))
        });
        let sets = sets.collect();
        Matrix { policies: policies.to_vec(), baseline: baseline.to_owned(), rows, totals, published: sets }
    }
}

impl Ground {
    fn of(row: &Row) -> Ground {
        Ground { machine: row.machine.clone(), is_modelled: row.provenance == Provenance::Modelled }
    }
}

/// The level of every claim: that of a comparison by the usual design.
fn level() -> f64 {
    (1.0 - Design::CONFIDENCE) * Design::SPENT_RATIO
}

/// Takes back what is no discovery among the rows of a machine.
fn correct(rows: &mut [Row], ground: &Ground, policy: usize) {
    let own = |row: &&mut Row| Ground::of(row) == *ground && row.cells[policy].has_claim();
    let mut own: Vec<&mut Row> = rows.iter_mut().filter(own).collect();
    let p_value = |row: &Row| row.cells[policy].effects.get(&row.metric)?.p_adjusted;
    own.retain(|row| p_value(row).is_some());
    let q_values = discovery::q_values(&own.iter().filter_map(|row| p_value(row)).collect::<Vec<_>>());
    for (row, q) in own.into_iter().zip(q_values) {
        let cell = &mut row.cells[policy];
        cell.q = Some(q);
        if matches!(cell.standing, Standing::Better | Standing::Worse) && q > level() {
            cell.standing = Standing::NotAmongSoMany;
        }
    }
}

fn total(rows: &[&Row], at: usize, policy: &str) -> Option<Total> {
    let first = rows.first()?;
    let claims = rows.iter().filter(|row| row.cells[at].has_claim());
    let costs: Vec<(f64, &Row)> = claims.filter_map(|row| Some((row.cost_ratio(&row.cells[at])?, *row))).collect();
    let ratios: Vec<f64> = costs.iter().map(|(cost, _)| *cost).collect();
    let worst = costs.iter().max_by(|one, other| one.0.total_cmp(&other.0));
    let races: Vec<Race> = rows.iter().map(|row| row.race.clone()).collect();
    Some(Total {
        machine: first.machine.clone(),
        provenance: first.provenance,
        policy: policy.to_owned(),
        mean: geometric(&ratios, Design::CONFIDENCE),
        worst: worst.map(|(cost, row)| (*cost, row.workload.clone())),
        wins: wins(&races, at, Design::CONFIDENCE),
        trade: None,
    })
}

impl Set {
    /// What the two say of each other, in words.
    pub fn describe(&self) -> String {
        match self.published.measure {
            Measure::Change => self.beside.describe().to_owned(),
            Measure::WinShare => self.beside.describe().replace("no change", "the share of chance"),
        }
    }
}

/// A published share of wins beside that of the policy.
fn set_of_wins(published: &Published, ground: &Ground, totals: &[Total]) -> Option<Set> {
    let is_own = |total: &&Total| {
        total.machine == ground.machine
            && (total.provenance == Provenance::Modelled) == ground.is_modelled
            && Some(&total.policy) == published.policy.as_ref()
    };
    let total = totals.iter().find(is_own).filter(|_| !ground.is_modelled)?;
    let share = total.wins.share();
    let interval = share.map(|share| share.interval);
    Some(Set {
        published: published.clone(),
        machine: ground.machine.clone(),
        provenance: total.provenance,
        found: share.map(|share| (share.share, Some(share.interval))),
        beside: Beside::within(published.ratio, interval, share.map_or(0.0, |share| share.by_chance)),
    })
}

/// A published figure beside the cell that it names, or beside the mean of a policy where it names no workload. It is
/// measured, so a model's count stands beside it only where the figure is of that count.
fn set(published: &Published, ground: &Ground, rows: &[Row], totals: &[Total]) -> Option<Set> {
    if published.measure == Measure::WinShare {
        return set_of_wins(published, ground, totals);
    }
    let policy = published.policy.as_ref()?;
    let own = rows.iter().filter(|row| Ground::of(row) == *ground);
    let first = own.clone().next()?;
    if ground.is_modelled && published.metric.as_ref().is_none_or(|metric| *metric != first.metric) {
        return None;
    }
    let effect = match &published.workload {
        Some(workload) => {
            let row = own.clone().find(|row| row.workload == *workload)?;
            let cell = row.cells.iter().find(|cell| cell.policy == *policy)?;
            let metric = published.metric.as_ref().unwrap_or(&row.metric);
            cell.effects.get(metric).filter(|_| cell.has_claim()).copied()
        }
        None => {
            let total = totals.iter().find(|total| {
                total.machine == ground.machine && total.provenance == first.provenance && total.policy == *policy
            });
            total.and_then(|total| total.mean).map(|mean| mean.effect())
        }
    };
    Some(Set {
        published: published.clone(),
        machine: ground.machine.clone(),
        provenance: first.provenance,
        found: effect.map(|effect| (effect.ratio, effect.low.zip(effect.high))),
        beside: Beside::of(published.ratio, effect.as_ref()),
    })
}
