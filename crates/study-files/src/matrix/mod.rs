//! The matrix of a study: a row per workload and machine, a cell per policy, and summaries over all rows.
//!
//! A cell summarizes its comparison ([`study::stats`]). Four results are computed over workloads, separately for each
//! machine, because measured and modelled figures, and figures of two hosts, are never pooled: which changes remain
//! significant among this many workloads ([`discovery`]), the geometric mean ([`geometric`]), shares of the largest gain
//! (`gain_share`), and how often each policy wins ([`wins`]). The correlation of saved walks with saved time
//! ([`correlations()`]) names the source of the walks and of the time.

mod agreement;
mod basis;
pub mod boots;
mod claim;
mod correlation;
pub mod discovery;
mod form;
mod gain_share;
pub mod geometric;
pub mod kernels;
mod origin;
mod row;
mod total;
mod trade;
pub mod wins;

use serde::Serialize;

pub use agreement::Agreement;
pub use basis::Basis;
pub use claim::Claim;
pub use correlation::{Correlation, correlations};
pub use form::{Filled, FilledRow, Order};
pub use origin::RowSource;
pub use row::{Cell, Conclusion, Row};
pub use total::{Mean, Total, TotalShare};
pub use trade::CostAndMemory;

use crate::definition::{Measure, Published};
use study::comparison::Design;
use study::metric::Provenance;
use study::stats::Effect;

/// The matrix of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The policies, in the order of every row's cells.
    pub policies: Vec<String>,
    /// The policy with which the others are compared.
    pub baseline: String,
    /// One row per workload and machine.
    pub rows: Vec<Row>,
    /// Summaries per machine and policy.
    pub totals: Vec<Total>,
    /// Published figures compared with those found here.
    pub published: Vec<Reproduction>,
}

/// A published figure and its reproduction here.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    /// The published figure.
    pub published: Published,
    /// The machine with which it is compared.
    pub machine: String,
    /// The provenance of that machine's figure.
    pub provenance: Provenance,
    /// The ratio or share of wins found here, and its interval.
    pub found: Option<(f64, Option<(f64, f64)>)>,
    /// How the two agree.
    pub agreement: Agreement,
}

/// A machine and the provenance of its figures, as a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct MachineSource {
    machine: String,
    is_modelled: bool,
}

impl Matrix {
    /// Builds the matrix from rows: corrects for many workloads and computes the summaries.
    pub fn of(policies: &[String], baseline: &str, mut rows: Vec<Row>, published: &[Published]) -> Matrix {
        let mut sources: Vec<MachineSource> = rows.iter().map(MachineSource::of).collect();
        let mut seen = std::collections::BTreeSet::new();
        sources.retain(|source| seen.insert(source.clone()));
        for source in &sources {
            (0..policies.len()).for_each(|policy| correct(&mut rows, source, policy));
        }
        let totals = sources.iter().flat_map(|source| {
            let rows: Vec<&Row> = rows.iter().filter(|row| MachineSource::of(row) == *source).collect();
            let mut trades = trade::trades(&rows, policies.len());
            let total = |(at, policy): (usize, &String)| {
                Some(Total { trade: trades[at].take(), ..Total::of(&rows, at, policy)? })
            };
            let mut totals: Vec<Total> = policies.iter().enumerate().filter_map(total).collect();
            gain_share::add(&mut totals, &rows, baseline);
            totals
        });
        let totals: Vec<Total> = totals.collect();
        let reproductions = sources.iter().flat_map(|source| {
            let (rows, totals) = (&rows, &totals);
            published.iter().filter_map(move |one| reproduction(one, source, rows, totals))
        });
        let reproductions = reproductions.collect();
        Matrix { policies: policies.to_vec(), baseline: baseline.to_owned(), rows, totals, published: reproductions }
    }
}

impl MachineSource {
    fn of(row: &Row) -> MachineSource {
        MachineSource { machine: row.machine.clone(), is_modelled: row.provenance == Provenance::Modelled }
    }
}

/// The significance level of every claim, which is that of a comparison with the default design.
fn level() -> f64 {
    (1.0 - Design::CONFIDENCE) * Design::SPENT_RATIO
}

/// Withdraws claims that are not discoveries among the rows of a machine.
fn correct(rows: &mut [Row], source: &MachineSource, policy: usize) {
    let own = |row: &&mut Row| MachineSource::of(row) == *source && row.cells[policy].has_claim();
    let mut own: Vec<&mut Row> = rows.iter_mut().filter(own).collect();
    let p_value = |row: &Row| row.cells[policy].effects.get(&row.metric)?.p_adjusted;
    own.retain(|row| p_value(row).is_some());
    let q_values = discovery::q_values(&own.iter().filter_map(|row| p_value(row)).collect::<Vec<_>>());
    for (row, q) in own.into_iter().zip(q_values) {
        let cell = &mut row.cells[policy];
        cell.q = Some(q);
        if matches!(cell.conclusion, Conclusion::Better | Conclusion::Worse) && q > level() {
            cell.conclusion = Conclusion::NotAfterCorrection;
        }
    }
}

impl Reproduction {
    /// The agreement in words.
    pub fn describe(&self) -> &'static str {
        match self.provenance {
            Provenance::Modelled if self.found.is_some() => "not judged: a model gives no interval",
            _ => self.agreement.describe(),
        }
    }
}

/// Compares a published share of wins with the share of wins of the policy here.
fn reproduction_of_wins(published: &Published, source: &MachineSource, totals: &[Total]) -> Option<Reproduction> {
    let is_own = |total: &&Total| {
        total.machine == source.machine
            && (total.provenance == Provenance::Modelled) == source.is_modelled
            && Some(&total.policy) == published.policy.as_ref()
    };
    let total = totals.iter().find(is_own).filter(|_| !source.is_modelled)?;
    let share = total.wins.share();
    let interval = share.map(|share| share.interval);
    Some(Reproduction {
        published: published.clone(),
        machine: source.machine.clone(),
        provenance: total.provenance,
        found: share.map(|share| (share.share, Some(share.interval))),
        agreement: Agreement::within(published.ratio, interval, share.map_or(0.0, |share| share.by_chance)),
    })
}

/// A mean as an effect over programs, without an interval if there is only one: a published mean of several programs is not
/// compared with a single one.
fn over_programs(mean: Mean) -> Effect {
    Mean { these: mean.these.filter(|_| mean.of > 1), ..mean }.effect()
}

/// Compares a published figure with the cell that it names, or with the mean of a policy over a suite or over all
/// workloads. Published figures are measured, so a model's count is compared only with a published figure of that count.
fn reproduction(published: &Published, source: &MachineSource, rows: &[Row], totals: &[Total]) -> Option<Reproduction> {
    if published.measure == Measure::WinShare {
        return reproduction_of_wins(published, source, totals);
    }
    let policy = published.policy.as_ref()?;
    let own = rows.iter().filter(|row| MachineSource::of(row) == *source);
    let first = own.clone().next()?;
    if source.is_modelled && published.metric.as_ref().is_none_or(|metric| *metric != first.metric) {
        return None;
    }
    // The published figure is for memory that had the pages, so rows that only requested them are left out.
    let is_held = |row: &&Row| row.cells.iter().any(|cell| cell.policy == *policy && cell.is_held);
    let effect = match &published.workload {
        Some(workload) => {
            let row = own.clone().find(|row| row.workload == *workload)?;
            let cell = row.cells.iter().find(|cell| cell.policy == *policy)?;
            let metric = published.metric.as_ref().unwrap_or(&row.metric);
            cell.effects.get(metric).filter(|_| cell.has_claim() && cell.is_held).copied()
        }
        None if published.suite.is_some() => {
            let of_suite = published.suite.iter().flat_map(|suite| &suite.workloads);
            let rows = own.clone().filter(|row| of_suite.clone().any(|name| *name == row.workload)).filter(is_held);
            total::mean(&rows.collect::<Vec<_>>(), policy).map(over_programs)
        }
        None => total::mean(&own.clone().filter(is_held).collect::<Vec<_>>(), policy).map(over_programs),
    };
    Some(Reproduction {
        published: published.clone(),
        machine: source.machine.clone(),
        provenance: first.provenance,
        found: effect.map(|effect| (effect.ratio, effect.low.zip(effect.high))),
        agreement: Agreement::of(published.ratio, effect.as_ref()),
    })
}
