//! `[counted]` of a study's file: what is counted, and how the counts are weighted.

use serde::Deserialize;

use crate::counted::{Basis, Cost, Costs, Counted, Figure, Pace, PatchedKernels, Range};
use policy::size::{SizeError, parse_bytes};

/// The section `[counted]` of a study's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireCounted {
    pub what: String,
    pub bytes: String,
    pub granules: Vec<String>,
    pub variants: Vec<String>,
    note: Option<String>,
    instruction: WirePace,
    #[serde(default)]
    cost: Vec<WireCost>,
    pub kernels: Option<PatchedKernels>,
}

/// Time per instruction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePace {
    ns: [f64; 2],
    basis: Basis,
    source: String,
}

/// Cost of an event.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCost {
    event: String,
    #[serde(default)]
    instructions: [f64; 2],
    #[serde(default)]
    ns: [f64; 2],
    basis: Basis,
    source: String,
}

/// The saving of the counted work to which a published figure refers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSaving {
    pub phase: String,
    pub backing: String,
    pub variant: String,
    #[serde(default)]
    pub instructions: bool,
}

/// An error in `[counted]`, or in a published figure of counted work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CountedError {
    #[error("bytes: {0}")]
    Bytes(SizeError),
    #[error("cost of {event:?}: expected two numbers from 0 on, the lower one first, found {low} and {high}")]
    Range {
        /// The event, or `instruction`.
        event: String,
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    #[error("cost of {event:?}: source: expected the source of the cost, or why it is assumed")]
    Source {
        /// The event, or `instruction`.
        event: String,
    },
    /// A published figure of counted work in a study without `[counted]`.
    #[error("published {what:?}: there is no [counted] in this study")]
    NothingCounted {
        /// Description of the figure.
        what: String,
    },
    /// A published figure of counted work that is not a saving.
    #[error("published {what:?}: a figure of counted work has `change`, and no workload, policy, boot, metric or wins")]
    Figure {
        /// Description of the figure.
        what: String,
    },
}

impl WireCounted {
    /// Converts `[counted]` for this size of memory, with the published figures.
    pub(super) fn read(&self, bytes: &str, published: Vec<Figure>) -> Result<Counted, CountedError> {
        Ok(Counted {
            what: self.what.clone(),
            bytes: parse_bytes(bytes).map_err(CountedError::Bytes)?,
            granules: self.granules.clone(),
            variants: self.variants.clone(),
            costs: Costs {
                instruction: self.instruction.read()?,
                events: self.cost.iter().map(WireCost::read).collect::<Result<_, _>>()?,
            },
            note: self.note.clone(),
            published,
            kernels: self.kernels.clone(),
        })
    }

    /// Names of the events that have a cost.
    pub(super) fn events(&self) -> impl Iterator<Item = &String> {
        self.cost.iter().map(|cost| &cost.event)
    }
}

impl WirePace {
    fn read(&self) -> Result<Pace, CountedError> {
        let event = "instruction";
        Ok(Pace { ns: range(event, self.ns)?, basis: self.basis, source: source(event, &self.source)? })
    }
}

impl WireCost {
    fn read(&self) -> Result<Cost, CountedError> {
        Ok(Cost {
            event: self.event.clone(),
            instructions: range(&self.event, self.instructions)?,
            ns: range(&self.event, self.ns)?,
            basis: self.basis,
            source: source(&self.event, &self.source)?,
        })
    }
}

fn range(event: &str, [low, high]: [f64; 2]) -> Result<Range, CountedError> {
    if low >= 0.0 && low <= high && high.is_finite() {
        Ok(Range { low, high })
    } else {
        Err(CountedError::Range { event: event.to_owned(), low, high })
    }
}

fn source(event: &str, source: &str) -> Result<String, CountedError> {
    if source.trim().is_empty() { Err(CountedError::Source { event: event.to_owned() }) } else { Ok(source.to_owned()) }
}
