//! Fills the form of the origin's table (the publication that the study repeats) with the figures found here: configurations,
//! each compared with the first.
//!
//! Configurations of one comparison are compared block by block. Runs of two comparisons were not interleaved, so a change between
//! them includes whatever else changed on the machine.

use std::collections::BTreeMap;

use super::basis::is_held;
use super::{Agreement, Reproduction};
use crate::definition::{Form, FormRow};
use policy::machine::Execution;
use study::comparison::{Comparison, Design};
use study::metric::{Direction, Provenance, Unit};
use study::stats::{Effect, Outcome, accepted, median, paired_ratio, unpaired_ratio};
use study::trial::TrialRecord;

/// The origin's table with the figures of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// Where the origin's table was published.
    pub source: String,
    /// Name of the machine.
    pub machine: String,
    /// The primary metric.
    pub metric: String,
    /// The additional metrics, each with the heading of its column.
    pub columns: Vec<(String, String)>,
    /// One row per row of the form, in the form's order.
    pub rows: Vec<FilledRow>,
    /// How the order of pairs of configurations agrees with the origin's order.
    pub order: Order,
}

/// A configuration with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledRow {
    /// The origin's name for the configuration.
    pub name: String,
    /// The corresponding workload and policy.
    pub of: (String, String),
    /// Whether the origin gives it a place in its order.
    pub is_ranked: bool,
    /// Number of runs that count.
    pub runs: usize,
    /// Medians of the metrics over these runs.
    pub medians: BTreeMap<String, f64>,
    /// The change of the primary metric against the first configuration; absent for the first configuration itself.
    pub effect: Option<Effect>,
    /// Whether the runs of this configuration and those of the first one belong to the same blocks.
    pub is_interleaved: bool,
    /// The comparison with the origin's figure.
    pub reproduction: Option<Reproduction>,
    /// Why there is no figure, or why the figure does not count.
    pub why_not: Option<String>,
}

/// Counts of the pairs of configurations that the origin ranks differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Pairs with figures for both here.
    pub pairs: usize,
    /// Pairs whose medians are in the origin's order.
    pub alike: usize,
    /// Pairs that differ for certain (their interval excludes 1), in the origin's order.
    pub shown: usize,
    /// Pairs that differ for certain, in the opposite order.
    pub against: usize,
}

/// The runs of a configuration.
struct Runs<'a> {
    comparison: &'a Comparison,
    trials: Vec<&'a TrialRecord>,
    why_not: Option<String>,
}

impl Filled {
    /// Fills a form with the comparisons of a machine; `None` if none of its configurations was measured.
    pub fn of<'a>(
        form: &Form,
        machine: &str,
        comparison_of: &dyn Fn(&str) -> Option<&'a Comparison>,
    ) -> Option<Filled> {
        let runs: Vec<Option<Runs<'a>>> =
            form.rows.iter().map(|row| Some(Runs::of(comparison_of(&row.workload)?, &row.policy))).collect();
        let design = &runs.iter().flatten().next()?.comparison.design;
        let metric = design.primary.clone();
        let direction = design.metrics.iter().find(|one| one.name == metric).map(|one| one.direction);
        let first = runs.first().and_then(Option::as_ref);
        let row =
            |(row, runs): (&FormRow, &Option<Runs<'_>>)| filled(form, row, runs.as_ref(), first, machine, &metric);
        let rows = form.rows.iter().zip(&runs).map(row).collect();
        Some(Filled {
            source: form.source.clone(),
            machine: machine.to_owned(),
            columns: form.columns.clone(),
            rows,
            order: order(form, &runs, &metric, direction == Some(Direction::Higher)),
            metric,
        })
    }

    /// The comparisons with published figures.
    pub fn published(&self) -> impl Iterator<Item = &Reproduction> + Clone {
        self.rows.iter().filter_map(|row| row.reproduction.as_ref())
    }
}

fn filled(
    form: &Form,
    row: &FormRow,
    runs: Option<&Runs<'_>>,
    first: Option<&Runs<'_>>,
    machine: &str,
    metric: &str,
) -> FilledRow {
    let is_first = form.rows.first() == Some(row);
    let effect = runs.zip(first).filter(|_| !is_first).and_then(|(own, first)| effect(own, first, metric));
    let wanted = std::iter::once(metric).chain(form.columns.iter().map(|(name, _)| name.as_str()));
    let medians = wanted.filter_map(|name| Some((name.to_owned(), runs?.median(name)?)));
    let why_not = match runs {
        None => Some("it was not measured".to_owned()),
        Some(runs) => runs.why_not.clone(),
    };
    let reproduction = row.published.clone().map(|published| Reproduction {
        agreement: Agreement::of(published.ratio, effect.as_ref().filter(|_| why_not.is_none())),
        machine: machine.to_owned(),
        provenance: Provenance::Measured,
        found: effect.filter(|_| why_not.is_none()).map(|effect| (effect.ratio, effect.low.zip(effect.high))),
        published,
    });
    FilledRow {
        name: row.name.clone(),
        of: (row.workload.clone(), row.policy.clone()),
        is_ranked: row.place.is_some(),
        runs: runs.map_or(0, |runs| runs.trials.len()),
        medians: medians.collect(),
        effect,
        is_interleaved: runs.zip(first).is_some_and(|(own, first)| own.is_interleaved_with(first)),
        reproduction,
        why_not,
    }
}

/// The change from `other` to `one`, block by block if they share blocks.
fn effect(one: &Runs<'_>, other: &Runs<'_>, metric: &str) -> Option<Effect> {
    let confidence = Design::CONFIDENCE;
    let (blocks, found) = if one.is_interleaved_with(other) {
        let pairs = one.pairs(other, metric);
        let (figures, baselines): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        (figures.len(), paired_ratio(&figures, &baselines, confidence)?)
    } else {
        let (figures, baselines) = (one.values(metric), other.values(metric));
        (figures.len().min(baselines.len()), unpaired_ratio(&figures, &baselines, confidence)?)
    };
    let (low, high) = found.interval.unzip();
    Some(Effect { blocks: blocks as u32, ratio: found.ratio, low, high, p_adjusted: None })
}

fn order(form: &Form, runs: &[Option<Runs<'_>>], metric: &str, more_is_better: bool) -> Order {
    let placed: Vec<(u32, &Runs<'_>)> = form
        .rows
        .iter()
        .zip(runs)
        .filter_map(|(row, runs)| Some((row.place?, runs.as_ref().filter(|runs| runs.why_not.is_none())?)))
        .collect();
    let mut order = Order::default();
    for (first, one) in &placed {
        for (_, other) in placed.iter().filter(|(place, _)| place > first) {
            let Some(effect) = effect(other, one, metric) else { continue };
            let is_more = |ratio: f64| if more_is_better { ratio < 1.0 } else { ratio > 1.0 };
            let is_certain = effect.low.zip(effect.high).is_some_and(|(low, high)| low > 1.0 || high < 1.0);
            order.pairs += 1;
            order.alike += usize::from(is_more(effect.ratio));
            order.shown += usize::from(is_certain && is_more(effect.ratio));
            order.against += usize::from(is_certain && !is_more(effect.ratio));
        }
    }
    order
}

/// Whether the primary metric is an emulator's time.
fn is_emulated(comparison: &Comparison) -> bool {
    let primary = comparison.design.metrics.iter().find(|metric| metric.name == comparison.design.primary);
    let counts = primary.is_some_and(|metric| matches!(metric.unit, Unit::Count | Unit::Bytes));
    comparison.machine.execution() == Execution::Emulated && !counts
}

impl<'a> Runs<'a> {
    fn of(comparison: &'a Comparison, policy: &str) -> Runs<'a> {
        let arm = comparison.design.compared().find(|arm| comparison.design.arms[*arm].label == policy);
        let counts = |record: &&TrialRecord| Some(record.trial.arm) == arm && record.trial.block > 0;
        let trials: Vec<&TrialRecord> = accepted(&comparison.trials).filter(counts).collect();
        let outcome = arm.and_then(|arm| Some(&comparison.analysis.as_ref()?.arms.get(arm)?.outcome));
        let why_not = match outcome {
            None if arm.is_none() => Some(format!("its comparison has no {policy}")),
            None => Some("no block of its comparison is complete".to_owned()),
            Some(_) if arm.is_some_and(|arm| !is_held(&comparison.trials, arm)) => {
                Some(format!("{policy} was not held"))
            }
            Some(Outcome::WrongAnswer { message } | Outcome::TooSlow { message }) => Some(message.clone()),
            Some(Outcome::Unsupported | Outcome::NotMeasured) => Some("the policy could not be applied".to_owned()),
            Some(_) if is_emulated(comparison) => {
                Some("an emulator ran it, and its times are not those of a processor".to_owned())
            }
            Some(_) => None,
        };
        Runs { comparison, trials, why_not }
    }

    /// Whether the runs of both come from one comparison, or from parts of one comparison that belong to different variants.
    fn is_interleaved_with(&self, other: &Runs<'_>) -> bool {
        let (one, other) = (self.comparison, other.comparison);
        std::ptr::eq(one, other) || (one.id > 0 && one.id == other.id)
    }

    fn values(&self, metric: &str) -> Vec<f64> {
        self.trials.iter().filter_map(|record| record.value(metric)).collect()
    }

    fn median(&self, metric: &str) -> Option<f64> {
        median(&mut self.values(metric))
    }

    /// The values of both, for the blocks that both have.
    fn pairs(&self, other: &Runs<'_>, metric: &str) -> Vec<(f64, f64)> {
        let of_block = |block: u32| other.trials.iter().find(|record| record.trial.block == block);
        let pair = |own: &&TrialRecord| Some((own.value(metric)?, of_block(own.trial.block)?.value(metric)?));
        self.trials.iter().filter_map(pair).collect()
    }
}
