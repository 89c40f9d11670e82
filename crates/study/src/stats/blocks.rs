//! [`Blocks`]: the blocks that count, with the values and ratios within them.

use std::collections::BTreeMap;

use super::answers::{self, Deviation};
use crate::comparison::{Comparison, Design};
use crate::trial::TrialRecord;
use policy::Admission;

/// The trials of the blocks that count, by arm and block.
///
/// A block counts if it is not block 0, the baseline gave the expected answer in it, and at least one arm that is compared with the
/// baseline, is admitted and never gave a wrong answer has an accepted trial in it. If there is no such arm, the baseline's trial
/// suffices. Other arms may have been dropped earlier, or be controls, which do not run in every block.
pub(crate) struct Blocks<'a> {
    /// Numbers of the blocks that count, ascending.
    pub numbers: Vec<u32>,
    /// How an arm's answer deviated, for each arm.
    pub deviations: Vec<Option<Deviation>>,
    /// For each arm, one entry per block that counts.
    records: Vec<Vec<Option<&'a TrialRecord>>>,
}

impl<'a> Blocks<'a> {
    /// Sorts the trials into blocks.
    pub fn new(design: &Design, trials: &'a [TrialRecord], admissions: &[Admission]) -> Blocks<'a> {
        let deviations = answers::deviations(design, trials);
        let admitted = |arm: usize| matches!(admissions.get(arm), Some(Admission::Admitted { .. }));
        let rivals: Vec<usize> = design
            .compared()
            .filter(|arm| *arm != design.baseline && admitted(*arm) && deviations[*arm].is_none())
            .collect();
        let rows = rows(design, trials);
        let expected = answers::expected(design, trials);
        let counts = |row: &&BTreeMap<usize, &TrialRecord>| {
            (rivals.is_empty() || rivals.iter().any(|arm| row.contains_key(arm)))
                && row.get(&design.baseline).map(|record| &record.answer) == expected
        };
        let counted: Vec<&BTreeMap<usize, &'a TrialRecord>> = rows.values().filter(counts).collect();
        let numbers = rows.iter().filter(|(_, row)| counts(row)).map(|(number, _)| *number).collect();
        let records =
            (0..design.arms.len()).map(|arm| counted.iter().map(|row| row.get(&arm).copied()).collect()).collect();
        Blocks { numbers, deviations, records }
    }

    /// The arm's trials in the blocks that count.
    pub fn trials(&self, arm: usize) -> impl Iterator<Item = &'a TrialRecord> {
        self.records[arm].iter().flatten().copied()
    }

    /// Whether the arm has a trial in a block that counts and none of its answers deviated.
    pub fn is_right(&self, arm: usize) -> bool {
        self.deviations[arm].is_none() && self.trials(arm).next().is_some()
    }

    /// The arm's observed values of a metric.
    pub fn values(&self, arm: usize, metric: &str) -> Vec<f64> {
        self.trials(arm).filter_map(|record| record.value(metric)).collect()
    }

    /// Natural logarithms of the arm's values, with their block numbers.
    pub fn logs(&self, arm: usize, metric: &str) -> Vec<(u32, f64)> {
        let value = |at: usize| self.records[arm][at].and_then(|record| record.value(metric));
        let log = |at: usize| value(at).and_then(logarithm).map(|log| (self.numbers[at], log));
        (0..self.numbers.len()).filter_map(log).collect()
    }

    /// The differences `arm` - `other`, one entry per block that counts, `None` if one of the two was not observed.
    pub fn differences(&self, arm: usize, other: usize, metric: &str) -> Vec<Option<f64>> {
        let value = |record: &Option<&TrialRecord>| record.and_then(|record| record.value(metric));
        let pairs = self.records[arm].iter().zip(&self.records[other]);
        pairs.map(|(one, two)| Some(value(one)? - value(two)?)).collect()
    }

    /// Natural logarithms of the ratios `arm` / `other`, one entry per block that counts, `None` if one of the two was
    /// not observed.
    ///
    /// `None` if no block has both, or if a value is zero, negative or not finite: there is no ratio to a count of
    /// zero, and omitting just those blocks would bias the rest.
    pub fn log_ratios(&self, arm: usize, other: usize, metric: &str) -> Option<Vec<Option<f64>>> {
        let value = |record: &Option<&TrialRecord>| record.and_then(|record| record.value(metric));
        let mut ratios = Vec::with_capacity(self.numbers.len());
        for (one, two) in self.records[arm].iter().zip(&self.records[other]) {
            ratios.push(match (value(one), value(two)) {
                (Some(one), Some(two)) => Some(logarithm(one)? - logarithm(two)?),
                _ => None,
            });
        }
        ratios.iter().any(Option::is_some).then_some(ratios)
    }
}

/// The logarithms of an arm's ratios to the baseline, one entry per block that counts; empty if there is no ratio.
pub fn log_ratios(comparison: &Comparison, arm: usize, metric: &str) -> Vec<Option<f64>> {
    let design = &comparison.design;
    let blocks = Blocks::new(design, &comparison.trials, &comparison.admissions);
    blocks.log_ratios(arm, design.baseline, metric).unwrap_or_default()
}

/// An arm's trials in the blocks that count.
pub fn counted_trials(comparison: &Comparison, arm: usize) -> Vec<&TrialRecord> {
    Blocks::new(&comparison.design, &comparison.trials, &comparison.admissions).trials(arm).collect()
}

/// The accepted trials by block and arm, without block 0.
fn rows<'a>(design: &Design, trials: &'a [TrialRecord]) -> BTreeMap<u32, BTreeMap<usize, &'a TrialRecord>> {
    let mut rows: BTreeMap<u32, BTreeMap<usize, &TrialRecord>> = BTreeMap::new();
    for record in answers::accepted(trials) {
        if record.trial.block > 0 && record.trial.arm < design.arms.len() {
            rows.entry(record.trial.block).or_default().entry(record.trial.arm).or_insert(record);
        }
    }
    rows
}

fn logarithm(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then(|| value.ln())
}
