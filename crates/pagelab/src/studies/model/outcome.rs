//! What came of a simulation, as the store keeps it, and as the matrix shows it.

use std::collections::BTreeMap;

use model::policy::ModelPolicy;
use results::simulation::{Cost, Missing};
use serde::{Deserialize, Serialize};
use study::definition::Definition;
use study::matrix::wins::Race;
use study::matrix::{Cell, Standing};
use study::stats::Effect;

/// Why there is nothing where nobody tried.
pub const UNSIMULATED: &str = "not simulated yet";

/// Whether models have a policy. A direct map of several sizes is none: how much there is of each no name says.
pub fn is_modelled(policy: &str) -> bool {
    match policy.parse() {
        Ok(ModelPolicy::Kernel(policy)) => policy.direct_map().is_none(),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// What a model machine gave, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// Figures of the whole trace.
    Ran {
        /// Every count by its name.
        figures: BTreeMap<String, u64>,
        /// Whether the policy held, or asked for nothing.
        is_held: bool,
        /// Absent where nothing was asked.
        coverage_ratio: Option<f64>,
        /// What must be known to read them.
        notes: Vec<String>,
        /// Its share of the seconds that recording and simulating took.
        #[serde(skip_serializing_if = "Option::is_none")]
        took_s: Option<f64>,
    },
    /// There can be none, for this reason.
    Missing {
        /// The reason.
        why: String,
    },
    /// There are none yet: it was tried, and failed for this reason.
    Failed {
        /// The reason.
        why: String,
    },
}

impl Outcome {
    /// What the simulation of a policy gave, what must be known of its machine and trace, and its share of the time.
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

    /// Reads what the store has; `None` where it is of a later version, or damaged.
    pub fn read(text: &str) -> Option<Outcome> {
        serde_json::from_str(text).ok()
    }

    /// What the store keeps.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Whether another one says the same: words beside figures do not count.
    pub fn agrees(&self, other: &Outcome) -> bool {
        match (self, other) {
            (
                Outcome::Ran { figures, is_held, coverage_ratio, .. },
                Outcome::Ran { figures: of_other, is_held: held, coverage_ratio: coverage, .. },
            ) => (figures, is_held, coverage_ratio) == (of_other, held, coverage),
            (one, other) => one == other,
        }
    }

    /// Accesses of its trace, and the seconds that it took.
    pub fn timed(&self) -> Option<(u64, f64)> {
        match self {
            Outcome::Ran { figures, took_s: Some(took_s), .. } => Some((*figures.get("accesses")?, *took_s)),
            Outcome::Ran { .. } | Outcome::Missing { .. } | Outcome::Failed { .. } => None,
        }
    }

    /// What must be known to read its figures.
    pub fn notes(&self) -> &[String] {
        match self {
            Outcome::Ran { notes, .. } => notes,
            Outcome::Missing { .. } | Outcome::Failed { .. } => &[],
        }
    }

    /// Why there is none yet.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Outcome::Failed { why } => Some(why),
            Outcome::Ran { .. } | Outcome::Missing { .. } => None,
        }
    }

    /// Its figures.
    pub fn figures(&self) -> Option<&BTreeMap<String, u64>> {
        match self {
            Outcome::Ran { figures, .. } => Some(figures),
            Outcome::Missing { .. } | Outcome::Failed { .. } => None,
        }
    }
}

/// A policy on a machine, beside the figures of the baseline there.
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
        standing: match (is_baseline, is_held) {
            (true, _) => Standing::Baseline,
            (false, true) => Standing::Modelled,
            (false, false) => Standing::NotHeld,
        },
        coverage_ratio,
        ..Cell::without(policy, String::new())
    }
}

/// A model has no noise: those with the least figure are in front.
pub fn race(cells: &[Cell], metric: &str) -> Race {
    let figure = |cell: &Cell| cell.medians.get(metric).copied().filter(|_| cell.standing != Standing::NotHeld);
    let running: Vec<usize> = (0..cells.len()).filter(|at| figure(&cells[*at]).is_some()).collect();
    let least = running.iter().filter_map(|at| figure(&cells[*at])).min_by(f64::total_cmp);
    let unbeaten: Vec<usize> = running.iter().copied().filter(|at| figure(&cells[*at]) == least).collect();
    Race { leader: unbeaten.first().copied(), running, unbeaten }
}
