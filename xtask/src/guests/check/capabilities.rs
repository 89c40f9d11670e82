//! Checks the matrix of capabilities: every cell has an outcome, a second run agrees, and a first touch of advised memory gets a PMD
//! leaf.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::guests::stage::{BootOutput, Stage};
use crate::guests::transcript::CheckOutput;

/// The name of the check.
pub const CHECK: &str = "capabilities";

/// The command whose output is the document.
pub const WHOLE: &str = "whole";

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let (whole, again) = (cells(part, WHOLE)?, cells(part, "again")?);
    let differing: Vec<String> = again.iter().filter_map(|(key, cell)| difference(key, whole.get(key), cell)).collect();
    if let Some(first) = differing.first() {
        return Err(format!("{} of {} cells differ in a second run; {first}", differing.len(), again.len()));
    }
    if let Some((key, cell)) = whole.iter().find(|(_, cell)| cell["outcome"] == "unknown") {
        return Err(format!("{key} is not known: {}", cell["reason"].as_str().unwrap_or_default()));
    }
    let document: Value = parsed(part, WHOLE)?;
    if let Some(pmd) = document["pmd_bytes"].as_u64() {
        let touched = whole.get(&format!("anonymous touch {pmd}")).ok_or("no cell of the leaf of a PMD")?;
        if touched["leaf"] != pmd {
            return Err(format!(
                "anonymous memory that was advised and touched: expected a leaf of {pmd}, found {touched}"
            ));
        }
    }
    let count = |outcome: &str| whole.values().filter(|cell| cell["outcome"] == outcome).count();
    Ok(format!(
        "{} cells: {} large, {} in folios only, {} refused, {} not available; {} of them tried again, with the same outcome",
        whole.len(),
        count("large"),
        count("folio_only"),
        count("refused"),
        count("not_available"),
        again.len()
    ))
}

/// The document of the whole matrix, from the output of a guest.
pub fn document(outputs: &[(Stage, BootOutput)]) -> Option<String> {
    let mut parts = outputs.iter().flat_map(|(_, output)| &output.parts);
    let part = parts.find(|part| part.check == CHECK)?;
    part.output(WHOLE).ok().map(str::to_owned)
}

fn parsed(part: &CheckOutput, name: &str) -> Result<Value, String> {
    serde_json::from_str(part.output(name)?).map_err(|error| format!("{name}: expected JSON: {error}"))
}

/// The cells of a document by memory, way and size.
fn cells(part: &CheckOutput, name: &str) -> Result<BTreeMap<String, Value>, String> {
    let document = parsed(part, name)?;
    let cells = document["cells"].as_array().filter(|cells| !cells.is_empty()).ok_or(format!("{name}: no cells"))?;
    Ok(cells.iter().map(|cell| (key(cell), cell.clone())).collect())
}

fn key(cell: &Value) -> String {
    let word = |name: &str| cell[name].as_str().map(|word| format!("{word} ")).unwrap_or_default();
    format!("{}{}{}{}", word("kind"), word("mount"), word("way"), cell["size_bytes"])
}

/// What differs between two trials of a cell; `None` if they agree, or if the outcome depends on free memory.
fn difference(key: &str, first: Option<&Value>, second: &Value) -> Option<String> {
    let Some(first) = first else { return Some(format!("{key} was not tried first")) };
    let depends = |cell: &Value| cell["depends_on_free_memory"] == true;
    let is_same = ["outcome", "leaf", "folio"].iter().all(|name| first[name] == second[name]);
    (!is_same && !depends(first) && !depends(second)).then(|| format!("{key}: {first}, then {second}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn document(outcome: &str, leaf_bytes: u64) -> String {
        let cell = serde_json::json!({ "kind": "anonymous", "mount": null, "way": "touch", "size_bytes": 2 << 20,
            "outcome": outcome, "leaf": leaf_bytes, "depends_on_free_memory": false, "reason": "it hangs" });
        serde_json::json!({ "pmd_bytes": 2 << 20, "cells": [cell] }).to_string()
    }

    fn judged(whole: &str, again: &str) -> Result<String, String> {
        judge(&part(vec![ran(WHOLE, whole), ran("again", again)]))
    }

    #[test]
    fn two_runs_must_agree_and_every_cell_must_be_known() {
        let large = document("large", 2 << 20);
        assert!(judged(&large, &large).unwrap().starts_with("1 cells: 1 large"));
        assert!(judged(&large, &document("refused", 4096)).unwrap_err().contains("1 of 1 cells differ"));
        let unknown = document("unknown", 4096);
        assert!(judged(&unknown, &unknown).unwrap_err().contains("anonymous touch 2097152 is not known: it hangs"));
        let small = document("folio_only", 4096);
        assert!(judged(&small, &small).unwrap_err().contains("expected a leaf of 2097152"));
    }
}
