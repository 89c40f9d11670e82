//! What made a row: enough to look at it, and to make it again.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::comparison::Comparison;

/// What made a row, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The number of its comparison in the store; absent where a model made it.
    pub comparison: Option<i64>,
    /// Command lines that make it again, one after the other.
    pub commands: Vec<Vec<String>>,
    /// The programs that ran, by name, each with the SHA-256 of its file; empty where that was not kept.
    pub programs: BTreeMap<String, String>,
}

impl Origin {
    /// A comparison, as far as it says by itself what made it.
    pub fn of(comparison: &Comparison) -> Origin {
        Origin {
            comparison: Some(comparison.id).filter(|id| *id > 0),
            commands: vec![comparison.invocation.pagelab.clone()],
            programs: BTreeMap::new(),
        }
    }
}
