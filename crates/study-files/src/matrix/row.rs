//! A row of the matrix: the results of a comparison or a model for each policy, for one workload on one machine.

use std::collections::BTreeMap;

use serde::Serialize;

use super::basis::{Basis, coverage_ratio, is_held};
use super::wins::Race;
use policy::Admission;
use policy::machine::Execution;
use study::comparison::{Comparison, Ended};
use study::metric::{Direction, Provenance, Unit, names};
use study::stats::boots::{Merged, sentences};
use study::stats::{Analysis, Effect, LogError, Outcome, Trend, counted_trials, log_ratios};

use super::origin::RowSource;

/// A workload on a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the workload.
    pub workload: String,
    /// The machine: a description of a host, or a model machine's name.
    pub machine: String,
    /// The provenance of the row's figures.
    pub provenance: Provenance,
    /// Id of the stored comparison.
    pub comparison: Option<i64>,
    /// Where the row's figures come from: one entry per part of the row.
    pub origins: Vec<RowSource>,
    /// Trend of the primary metric under the baseline; absent with too few blocks.
    pub drift: Option<Trend>,
    /// Number of blocks that count.
    pub blocks: u32,
    /// The primary metric.
    pub metric: String,
    /// The direction in which it improves.
    pub direction: Direction,
    /// Whether an emulator ran the workload, so that none of the row's figures is a time.
    #[serde(skip)]
    pub is_emulated: bool,
    /// One cell per policy of the study, in the study's order.
    pub cells: Vec<Cell>,
    /// Which policies ran, and which came out ahead.
    #[serde(skip)]
    pub race: Race,
    /// Remarks that are needed to interpret the row.
    pub notes: Vec<String>,
    /// Whether the changes are between boots. Other rows of the same boots then share the error of this row.
    #[serde(skip)]
    pub shares_boots: bool,
}

/// A policy for one workload and machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Name of the policy.
    pub policy: String,
    /// Medians of all metrics, or a model's figures.
    pub medians: BTreeMap<String, f64>,
    /// Changes of all metrics against the baseline.
    pub effects: BTreeMap<String, Effect>,
    /// The p value of the primary metric, corrected for the other policies and then for the other workloads.
    pub q: Option<f64>,
    /// Share of the memory to which the policy applies that was mapped as requested, over all trials that count; absent if the
    /// policy requests nothing, or if no memory was seen. Memory whose mapping is unknown is not counted.
    pub coverage_ratio: Option<f64>,
    /// Whether the policy was shown to be in force. If not, the figures show the effect of requesting the policy, not of its
    /// pages.
    pub is_held: bool,
    /// The measuring error of the primary metric's change; absent where none was measured.
    #[serde(skip)]
    pub error: Option<LogError>,
    /// Logarithms of the ratios of the primary metric to the baseline's, by block; empty if it was not measured in blocks.
    #[serde(skip)]
    pub log_ratios: Vec<Option<f64>>,
    /// The observations behind the figures.
    #[serde(skip)]
    pub basis: Basis,
    /// The conclusion.
    pub conclusion: Conclusion,
}

/// The conclusion about a policy for a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "conclusion")]
pub enum Conclusion {
    Baseline,
    /// Better than the baseline, corrected for all policies and workloads.
    Better,
    /// Worse, by the same rule.
    Worse,
    /// The difference does not matter.
    Equivalent,
    /// The noise is too large to decide.
    Undecided,
    /// Better or worse by itself, but not significant after the correction for all workloads.
    NotAfterCorrection,
    /// The tracer's stops could have caused the change, or hidden one.
    WithinTracerCost,
    /// The figure is a model's. It has no noise, so no significance can be computed.
    Modelled,
    /// The figure is an emulator's time, which says nothing about a processor.
    Emulated,
    /// There is no figure.
    None {
        /// The reason, as a clause.
        why: String,
    },
}

impl Row {
    /// The row of a workload that was not measured.
    pub fn without(workload: &str, machine: &str, policies: &[String], why: &str) -> Row {
        let none = |policy: &String| Cell::without(policy, why.to_owned());
        Row {
            workload: workload.to_owned(),
            machine: machine.to_owned(),
            provenance: Provenance::Measured,
            comparison: None,
            origins: Vec::new(),
            drift: None,
            blocks: 0,
            metric: names::WALL_S.to_owned(),
            direction: Direction::Lower,
            is_emulated: false,
            cells: policies.iter().map(none).collect(),
            race: Race::default(),
            notes: Vec::new(),
            shares_boots: false,
        }
    }

    /// The row of a comparison. `left_out`: policies that the comparison does not contain, with the reasons.
    pub fn of_comparison(
        workload: &str,
        machine: &str,
        policies: &[String],
        comparison: &Comparison,
        left_out: &[(String, String)],
    ) -> Row {
        let arms: Vec<Option<usize>> = policies.iter().map(|policy| arm_of(comparison, policy)).collect();
        let cell = |(policy, arm): (&String, &Option<usize>)| match arm {
            Some(arm) => of_arm(policy, comparison, *arm),
            None => {
                let why = left_out.iter().find(|(name, _)| name == policy).map(|(_, why)| why.clone());
                Cell::without(policy, why.unwrap_or_else(|| "the comparison has no such policy".to_owned()))
            }
        };
        let analysis = comparison.analysis.as_ref();
        // The analysis has another primary metric than the design if the first process ended while others continued.
        let deciding = analysis.map_or(&comparison.design.primary, |analysis| &analysis.primary);
        let primary = comparison.design.metrics.iter().find(|metric| metric.name == *deciding);
        let direction = primary.map_or(Direction::Lower, |metric| metric.direction);
        let policy_of = |arm: usize| arms.iter().position(|one| *one == Some(arm));
        let row = Row {
            cells: policies.iter().zip(&arms).map(cell).collect(),
            provenance: provenance(comparison),
            comparison: Some(comparison.id).filter(|id| *id > 0),
            origins: vec![RowSource::of(comparison)],
            drift: Trend::of(comparison),
            blocks: analysis.map_or(0, |analysis| analysis.blocks),
            metric: deciding.clone(),
            direction,
            race: analysis.map(|analysis| race(analysis, direction, &policy_of)).unwrap_or_default(),
            notes: analysis.map(|analysis| notes(analysis, comparison)).unwrap_or_default(),
            ..Row::without(workload, machine, policies, "")
        };
        match comparison.machine.execution() {
            Execution::Emulated => row.emulated(primary.map_or(Unit::Seconds, |metric| metric.unit)),
            Execution::Metal | Execution::Guest { .. } => row,
        }
    }

    /// The row of merged boots, where each policy is a property of a boot.
    pub fn of_boots(workload: &str, machine: &str, policies: &[String], merged: &Merged) -> Row {
        let arm_of = |policy: &String| merged.design.arms.iter().position(|arm| arm.label == *policy);
        let cell = |policy: &String| match arm_of(policy).map(|at| (at, &merged.arms[at])) {
            None => Cell::without(policy, "no boot of this design has it".to_owned()),
            Some((at, arm)) => match conclusion(&arm.outcome) {
                Conclusion::None { .. } if arm.boots == 0 => {
                    Cell::without(policy, "no boot that has it was measured".to_owned())
                }
                conclusion @ Conclusion::None { .. } => Cell { conclusion, ..Cell::without(policy, String::new()) },
                conclusion => Cell {
                    medians: arm.medians.clone(),
                    effects: arm.effects.clone(),
                    is_held: arm.is_held,
                    error: merged.error(at),
                    basis: Basis::of_boots(merged, at),
                    conclusion,
                    ..Cell::without(policy, String::new())
                },
            },
        };
        let cells: Vec<Cell> = policies.iter().map(cell).collect();
        let primary = merged.design.metrics.iter().find(|metric| metric.name == merged.design.primary);
        let is_best = |at: usize| {
            let arm = arm_of(&policies[at]).map(|arm| &merged.arms[arm].outcome);
            matches!(arm, Some(Outcome::Better { best: true }))
        };
        let own = Row {
            metric: merged.design.primary.clone(),
            direction: primary.map_or(Direction::Lower, |metric| metric.direction),
            notes: sentences(&merged.limits, &merged.design.arms),
            shares_boots: true,
            ..Row::without(workload, machine, policies, "")
        };
        let race = race_of_boots(&own, &cells, &is_best);
        Row { cells, race, ..own }
    }

    /// The same row for an emulator: if the primary metric is a time, no cell makes a claim, and no policy comes out
    /// ahead. Faults and bytes are determined by the kernel, so they remain valid.
    #[must_use]
    pub fn emulated(self, unit: Unit) -> Row {
        let is_figure = |conclusion: &Conclusion| !matches!(conclusion, Conclusion::None { .. });
        let own = Row { is_emulated: true, ..self };
        if matches!(unit, Unit::Count | Unit::Bytes) {
            return own;
        }
        let cells = own.cells.into_iter().map(|cell| {
            if is_figure(&cell.conclusion) { Cell { conclusion: Conclusion::Emulated, ..cell } } else { cell }
        });
        let note =
            "an emulator ran it: its times are those of the emulator, and say nothing about a processor".to_owned();
        Row {
            cells: cells.collect(),
            race: Race::default(),
            notes: [note].into_iter().chain(own.notes).collect(),
            ..own
        }
    }

    /// Ratio of a cell's primary metric as a cost: below 1 is better, whichever way the metric improves.
    pub fn cost_ratio(&self, cell: &Cell) -> Option<f64> {
        self.cost(cell).map(|cost| cost.ratio)
    }

    /// The change of a cell's primary metric as a cost, with its interval: throughput is inverted.
    pub fn cost(&self, cell: &Cell) -> Option<Effect> {
        let effect = *cell.effects.get(&self.metric)?;
        Some(if self.direction == Direction::Higher { inverted(&effect) } else { effect })
    }
}

impl Cell {
    /// A policy without a figure.
    pub fn without(policy: &str, why: String) -> Cell {
        Cell {
            policy: policy.to_owned(),
            medians: BTreeMap::new(),
            effects: BTreeMap::new(),
            q: None,
            coverage_ratio: None,
            is_held: true,
            error: None,
            log_ratios: Vec::new(),
            basis: Basis::default(),
            conclusion: Conclusion::None { why },
        }
    }

    /// Whether its change can be attributed to the policy.
    pub fn has_claim(&self) -> bool {
        use Conclusion::{Better, Equivalent, Modelled, NotAfterCorrection, Undecided, Worse};
        matches!(self.conclusion, Better | Worse | Equivalent | Undecided | NotAfterCorrection | Modelled)
    }
}

/// Converts a throughput into a cost, or a cost into a throughput.
pub(super) fn inverted(effect: &Effect) -> Effect {
    Effect {
        ratio: 1.0 / effect.ratio,
        low: effect.high.map(|high| 1.0 / high),
        high: effect.low.map(|low| 1.0 / low),
        ..*effect
    }
}

fn arm_of(comparison: &Comparison, policy: &str) -> Option<usize> {
    comparison.design.compared().find(|arm| comparison.design.arms[*arm].label == policy)
}

/// The provenance of a row. A single figure that is not measured makes the whole row modelled.
fn provenance(comparison: &Comparison) -> Provenance {
    let mut observations = comparison.trials.iter().flat_map(|record| &record.observations);
    let is_modelled = observations.any(|one| one.provenance == Provenance::Modelled);
    if is_modelled { Provenance::Modelled } else { Provenance::Measured }
}

fn of_arm(policy: &str, comparison: &Comparison, arm: usize) -> Cell {
    if let Some(Admission::Unsupported(why)) = comparison.admissions.get(arm) {
        return Cell::without(policy, why.to_string());
    }
    let analysed = comparison.analysis.as_ref();
    let Some((analysis, primary)) = analysed.and_then(|all| Some((all.arms.get(arm)?, &all.primary))) else {
        return Cell::without(policy, without_analysis(&comparison.ended));
    };
    let log_ratios = log_ratios(comparison, arm, primary);
    match conclusion(&analysis.outcome) {
        conclusion @ Conclusion::None { .. } => Cell { conclusion, ..Cell::without(policy, String::new()) },
        conclusion => Cell {
            medians: analysis.medians.clone(),
            effects: analysis.effects.clone(),
            coverage_ratio: coverage_ratio(&counted_trials(comparison, arm)),
            is_held: is_held(&comparison.trials, arm),
            error: LogError::of_sample(&log_ratios.iter().flatten().copied().collect::<Vec<_>>()),
            log_ratios,
            basis: Basis::of_arm(comparison, arm),
            conclusion,
            ..Cell::without(policy, String::new())
        },
    }
}

/// Why a comparison has no analysis.
fn without_analysis(ended: &Ended) -> String {
    match ended {
        Ended::Failed { message } | Ended::TooSlow { message } => message.clone(),
        Ended::Time => "the time limit expired before a block was complete".to_owned(),
        Ended::NotEnded | Ended::Interrupted => "it was interrupted before a block was complete".to_owned(),
        Ended::NothingAdmitted => "no policy could be applied".to_owned(),
        Ended::Blocks | Ended::Precise => "no block of its comparison is complete".to_owned(),
    }
}

fn conclusion(outcome: &Outcome) -> Conclusion {
    let none = |why: &str| Conclusion::None { why: why.to_owned() };
    match outcome {
        Outcome::Baseline => Conclusion::Baseline,
        Outcome::Better { .. } => Conclusion::Better,
        Outcome::Worse => Conclusion::Worse,
        Outcome::Equivalent => Conclusion::Equivalent,
        Outcome::Undecided { .. } => Conclusion::Undecided,
        Outcome::WithinTracerCost => Conclusion::WithinTracerCost,
        Outcome::Unsupported => none("it could not be applied"),
        Outcome::WrongAnswer { message } => none(&format!("wrong answer: {message}")),
        Outcome::TooSlow { message } => none(&format!("too slow: it {message}")),
        Outcome::NotMeasured | Outcome::Control => none("no trial of it counted"),
    }
}

/// The policies that came out ahead, as indices.
fn race(analysis: &Analysis, direction: Direction, policy_of: &dyn Fn(usize) -> Option<usize>) -> Race {
    let outcome = |arm: usize| &analysis.arms[arm].outcome;
    let has_figures = |arm: &usize| {
        use Outcome::{Baseline, Better, Equivalent, Undecided, Worse};
        policy_of(*arm).is_some()
            && matches!(outcome(*arm), Baseline | Better { .. } | Worse | Equivalent | Undecided { .. })
    };
    let running: Vec<usize> = (0..analysis.arms.len()).filter(has_figures).collect();
    let best = analysis.best();
    let is_unbeaten = |arm: &usize| {
        if best.is_empty() {
            // No arm beats the baseline, so the baseline shares the first place with the arms that it does not beat.
            !matches!(outcome(*arm), Outcome::Worse)
        } else {
            best.contains(arm) || best.iter().all(|one| analysis.arms[*one].tied.contains(arm))
        }
    };
    let cost = |arm: &usize| {
        let ratio = analysis.arms[*arm].effects.get(&analysis.primary).map_or(1.0, |effect| effect.ratio);
        if direction == Direction::Higher { 1.0 / ratio } else { ratio }
    };
    let leader = running.iter().copied().min_by(|one, other| cost(one).total_cmp(&cost(other)));
    let policies = |arms: Vec<usize>| arms.into_iter().filter_map(policy_of).collect();
    Race {
        unbeaten: policies(running.iter().copied().filter(is_unbeaten).collect()),
        leader: leader.and_then(policy_of),
        running: policies(running),
    }
}

/// The race over boots: a policy is unbeaten if no other is shown to beat it. If none is better than the baseline, all that are
/// not worse are unbeaten.
fn race_of_boots(row: &Row, cells: &[Cell], is_best: &dyn Fn(usize) -> bool) -> Race {
    let runs = |at: &usize| cells[*at].has_claim() || cells[*at].conclusion == Conclusion::Baseline;
    let running: Vec<usize> = (0..cells.len()).filter(runs).collect();
    let best: Vec<usize> = running.iter().copied().filter(|at| is_best(*at)).collect();
    let is_not_worse = |at: &usize| cells[*at].conclusion != Conclusion::Worse;
    let not_worse: Vec<usize> = running.iter().copied().filter(is_not_worse).collect();
    let cost = |at: &usize| row.cost_ratio(&cells[*at]).unwrap_or(1.0);
    let leader = running.iter().copied().min_by(|one, other| cost(one).total_cmp(&cost(other)));
    Race { unbeaten: if best.is_empty() { not_worse } else { best }, leader, running }
}

fn notes(analysis: &Analysis, comparison: &Comparison) -> Vec<String> {
    analysis.warnings.iter().map(|warning| warning.describe(&comparison.design.arms)).collect()
}
