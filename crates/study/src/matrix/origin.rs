//! The origin of a row: enough information to inspect it and to reproduce it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::comparison::Comparison;

/// The origin of a row, or of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Id of its comparison in the store; absent if a model computed it.
    pub comparison: Option<i64>,
    /// Command lines that reproduce it, in order.
    pub commands: Vec<Vec<String>>,
    /// The programs that ran, by name, each with the SHA-256 of its file; empty if that was not recorded.
    pub programs: BTreeMap<String, String>,
}

impl Origin {
    /// The origin of a comparison, as far as the comparison records it.
    pub fn of(comparison: &Comparison) -> Origin {
        Origin {
            comparison: Some(comparison.id).filter(|id| *id > 0),
            commands: vec![comparison.invocation.pagelab.clone()],
            programs: BTreeMap::new(),
        }
    }
}
