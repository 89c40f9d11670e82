//! The matrix as a document.

use policy::capability::{Cell, Matrix};
use serde_json::{Value, json};

/// The schema of the document.
pub const SCHEMA: &str = "pagelab.capabilities/1";

/// The document of a matrix: the fields of [`Matrix`], with the names of kinds and ways as on the command line.
pub fn document(matrix: &Matrix) -> Value {
    json!({
        "schema": SCHEMA,
        "kernel": matrix.kernel,
        "architecture": matrix.architecture,
        "base_bytes": matrix.base,
        "pmd_bytes": matrix.pmd,
        "settings": matrix.settings,
        "sees_folios": matrix.sees_folios,
        "contiguous": matrix.contiguous,
        "cells": matrix.cells.iter().map(cell).collect::<Vec<_>>(),
    })
}

fn cell(cell: &Cell) -> Value {
    json!({
        "kind": cell.kind,
        "way": cell.way,
        "size_bytes": cell.size,
        "depends_on_free_memory": cell.depends_on_free_memory,
        "result": cell.outcome,
    })
}
