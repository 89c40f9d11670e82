//! Compares published savings with computed ranges.

use serde::{Deserialize, Serialize};

use super::cost::Range;
use super::table::Table;

/// A published saving for one phase, backing and variant, averaged over granules.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Description of the figure.
    pub what: String,
    /// The phase, as in [`Case::phase`](super::Case::phase).
    pub phase: String,
    /// What maps the memory, as in [`Case::backing`](super::Case::backing).
    pub backing: String,
    pub variant: String,
    /// Whether the source counts instructions only, as on a software model.
    pub is_of_instructions: bool,
    /// The figure, as published: `-33.1%`.
    pub change: String,
    /// The saved share of the time: 0.331.
    pub saved: f64,
    /// Where it was published.
    pub source: String,
    /// Why the figure here may differ, as far as the study's author knows.
    pub differs: Option<String>,
}

/// Changes that patched kernels showed when they were booted: the same variants, in instructions of whole calls.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PatchedKernels {
    /// Description of the kernels.
    pub what: String,
    /// Where their figures are.
    pub source: String,
    /// What each variant changed.
    pub changes: Vec<KernelChange>,
}

/// What a variant changed in a patched kernel.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KernelChange {
    /// The phase, as in [`Case::phase`](super::Case::phase).
    pub phase: String,
    /// What maps the memory, as in [`Case::backing`](super::Case::backing).
    pub backing: String,
    pub variant: String,
    /// The change of instructions: `-39.9%`.
    pub change: String,
}

impl PatchedKernels {
    /// The change by a variant.
    pub fn change(&self, phase: &str, backing: &str, variant: &str) -> Option<&str> {
        let is_own = |one: &&KernelChange| {
            (one.phase.as_str(), one.backing.as_str(), one.variant.as_str()) == (phase, backing, variant)
        };
        self.changes.iter().find(is_own).map(|one| one.change.as_str())
    }
}

/// Position of a published saving relative to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Within the range.
    Within,
    /// Above the range: a larger saving.
    Above,
    /// Below the range: a smaller saving.
    Below,
    /// There is no range to compare with.
    NotCounted,
}

/// A published saving and its reproduction: the range computed here.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduction {
    /// The published figure.
    pub figure: Figure,
    /// The computed range: a share of the time, or of the instructions if the source counts only instructions.
    pub found: Option<Range>,
    /// Position of the published figure in the range.
    pub place: Place,
}

impl Place {
    /// The position as a clause.
    pub fn describe(self) -> &'static str {
        match self {
            Place::Within => "within the range",
            Place::Above => "more than the range holds",
            Place::Below => "less than the range holds",
            Place::NotCounted => "not counted yet",
        }
    }
}

impl Reproduction {
    /// Compares a figure with a table.
    pub fn of(figure: &Figure, table: &Table) -> Reproduction {
        let saving = table.average(&figure.phase, &figure.backing, &figure.variant);
        let found = saving.map(|saving| if figure.is_of_instructions { saving.instructions } else { saving.time });
        let place = match found {
            None => Place::NotCounted,
            Some(range) if range.holds(figure.saved) => Place::Within,
            Some(range) if figure.saved > range.high => Place::Above,
            Some(_) => Place::Below,
        };
        Reproduction { figure: figure.clone(), found, place }
    }
}
