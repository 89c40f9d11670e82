//! The outcome of a simulation ([`Outcome`]), as the store keeps it and as the matrix shows it.

use std::collections::BTreeMap;

use model::policy::ModelPolicy;
use results::simulation::{Cost, Missing};
use serde::{Deserialize, Serialize};
use study::stats::Effect;
use study_files::definition::Definition;
use study_files::matrix::wins::Race;
use study_files::matrix::{Cell, Conclusion};

/// The reason for a missing figure if no simulation was tried.
pub const UNSIMULATED: &str = "not simulated yet";

/// Whether models support a policy. They do not support a direct map of mixed leaf sizes, because the policy's name does
/// not give the share of each size.
pub fn is_modelled(policy: &str) -> bool {
    match policy.parse() {
        Ok(ModelPolicy::Kernel(policy)) => policy.direct_map().is_none(),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// The outcome under a policy on a model machine, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The simulation reached the end of the trace.
    Ran {
        /// Every count, by name.
        figures: BTreeMap<String, u64>,
        /// Whether the policy held, or requested nothing.
        is_held: bool,
        /// The share of memory that the policy mapped as requested; absent if it requested nothing.
        coverage_ratio: Option<f64>,
        /// Notes that a reader of the figures needs.
        notes: Vec<String>,
        /// The seconds that recording and simulating took, as far as they are due to this simulation.
        #[serde(skip_serializing_if = "Option::is_none")]
        took_s: Option<f64>,
    },
    /// The simulation is impossible, for this reason.
    Missing {
        /// The reason.
        why: String,
    },
    /// The simulation failed, for this reason.
    Failed {
        /// The reason.
        why: String,
    },
}

impl Outcome {
    /// Makes an outcome from the result under a policy, the notes on its machine and trace, and the seconds that are
    /// due to it.
    pub fn of(outcome: Result<Cost, Missing>, notes: &[String], took_s: f64) -> Outcome {
        use policy::verdict::Holding::{Held, NotAsked};
        match outcome {
            Err(missing) => Outcome::Missing { why: missing.why().to_owned() },
            Ok(Cost { figures, verdict, .. }) => Outcome::Ran {
                figures: figures.into_iter().collect(),
                is_held: matches!(verdict.holding, Held | NotAsked),
                coverage_ratio: verdict.coverage_ratio().filter(|_| verdict.holding != NotAsked),
                notes: notes.to_vec(),
                took_s: Some(took_s),
            },
        }
    }

    /// Parses a stored outcome; `None` if a later version wrote it, or if it is damaged.
    pub fn read(text: &str) -> Option<Outcome> {
        serde_json::from_str(text).ok()
    }

    /// The text for the store.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Whether another outcome is equal, ignoring notes and times.
    pub fn agrees(&self, other: &Outcome) -> bool {
        match (self, other) {
            (
                Outcome::Ran { figures, is_held, coverage_ratio, .. },
                Outcome::Ran { figures: of_other, is_held: held, coverage_ratio: coverage, .. },
            ) => (figures, is_held, coverage_ratio) == (of_other, held, coverage),
            (one, other) => one == other,
        }
    }

    /// The accesses of the trace and the seconds that the simulation took.
    pub fn timed(&self) -> Option<(u64, f64)> {
        match self {
            Outcome::Ran { figures, took_s: Some(took_s), .. } => Some((*figures.get("accesses")?, *took_s)),
            Outcome::Ran { .. } | Outcome::Missing { .. } | Outcome::Failed { .. } => None,
        }
    }

    /// Notes on the limits of the figures.
    pub fn notes(&self) -> &[String] {
        match self {
            Outcome::Ran { notes, .. } => notes,
            Outcome::Missing { .. } | Outcome::Failed { .. } => &[],
        }
    }

    /// Why the simulation failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Failed { why } => Some(why),
            Outcome::Ran { .. } | Outcome::Missing { .. } => None,
        }
    }

    pub fn figures(&self) -> Option<&BTreeMap<String, u64>> {
        match self {
            Outcome::Ran { figures, .. } => Some(figures),
            Outcome::Missing { .. } | Outcome::Failed { .. } => None,
        }
    }
}

/// The cell for a policy on a machine, relative to the baseline's figures on that machine.
pub fn cell(
    definition: &Definition,
    policy: &str,
    outcome: &Option<Outcome>,
    baseline: Option<&BTreeMap<String, u64>>,
) -> Cell {
    let (figures, is_held, coverage_ratio) = match outcome {
        None if is_modelled(policy) => return Cell::without(policy, UNSIMULATED.to_owned()),
        None => return Cell::without(policy, "models have no such policy".to_owned()),
        Some(Outcome::Missing { why } | Outcome::Failed { why }) => return Cell::without(policy, why.clone()),
        Some(Outcome::Ran { figures, is_held, coverage_ratio, .. }) => (figures, *is_held, *coverage_ratio),
    };
    let Some(baseline) = baseline else {
        return Cell::without(policy, "the baseline has no figure".to_owned());
    };
    if !figures.contains_key(&definition.model_primary) {
        let known: Vec<&str> = figures.keys().map(String::as_str).collect();
        let why = format!("there is no figure {:?}; there are {}", definition.model_primary, known.join(", "));
        return Cell::without(policy, why);
    }
    let effect = |(name, value): (&String, &u64)| {
        let of = *baseline.get(name).filter(|of| **of > 0)?;
        let ratio = *value as f64 / of as f64;
        Some((name.clone(), Effect { blocks: 0, ratio, low: None, high: None, p_adjusted: None }))
    };
    let is_baseline = policy == definition.baseline;
    Cell {
        medians: figures.iter().map(|(name, value)| (name.clone(), *value as f64)).collect(),
        effects: if is_baseline { BTreeMap::new() } else { figures.iter().filter_map(effect).collect() },
        conclusion: if is_baseline { Conclusion::Baseline } else { Conclusion::Modelled },
        coverage_ratio,
        is_held: is_baseline || is_held,
        ..Cell::without(policy, String::new())
    }
}

/// The race between the policies of a row. Models have no noise, so the policies with the lowest figure win.
pub fn race(cells: &[Cell], metric: &str) -> Race {
    let figure = |cell: &Cell| cell.medians.get(metric).copied().filter(|_| cell.is_held);
    let running: Vec<usize> = (0..cells.len()).filter(|at| figure(&cells[*at]).is_some()).collect();
    let least = running.iter().filter_map(|at| figure(&cells[*at])).min_by(f64::total_cmp);
    let unbeaten: Vec<usize> = running.iter().copied().filter(|at| figure(&cells[*at]) == least).collect();
    Race { leader: unbeaten.first().copied(), running, unbeaten }
}
