//! [`RowSource`]: where a row comes from, with enough information to inspect the row and to reproduce it.

use std::collections::BTreeMap;

use serde::Serialize;

use study::comparison::Comparison;

/// Where a row, or a part of it, comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowSource {
    /// Id of the comparison in the store; absent if a model computed the row.
    pub comparison: Option<i64>,
    /// Command lines that reproduce the row, in order.
    pub commands: Vec<Vec<String>>,
    /// The programs that ran, by name, each with the SHA-256 of its file; empty if that was not recorded.
    pub programs: BTreeMap<String, String>,
}

impl RowSource {
    /// The origin of a comparison, as far as the comparison records it.
    pub fn of(comparison: &Comparison) -> RowSource {
        RowSource {
            comparison: Some(comparison.id).filter(|id| *id > 0),
            commands: vec![comparison.invocation.pagelab.clone()],
            programs: BTreeMap::new(),
        }
    }
}
