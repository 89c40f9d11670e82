//! The matrices of capabilities (which page each kind of memory can get) of the guests' kernels. The last matrix of each kernel is
//! stored in `docs/evidence/capabilities`, and all are shown in `docs/evidence/capabilities.md`.

mod matrix;
mod page;
mod picture;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use matrix::Matrix;

/// The directory of the stored documents; the page and its picture follow.
const DOCUMENTS: &str = "docs/evidence/capabilities";
const PAGE: &str = "docs/evidence/capabilities.md";
const PICTURE: &str = "docs/evidence/capabilities.svg";

/// Where a matrix comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub guest: String,
    /// The package of its kernel, with its version.
    pub kernel: String,
    pub emulator: String,
    /// The commit of the pagelab that made the matrix.
    pub commit: String,
    /// The date in ISO 8601 format.
    pub date: String,
}

/// Stores the document of a guest, and writes the page and the picture of all guests, in this order.
pub fn keep(root: &Path, origin: &Origin, document: &str, order: &[String]) -> Result<(), String> {
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()));
    let directory = root.join(DOCUMENTS);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    write(&directory.join(format!("{}.json", origin.guest)), &stored(origin, document)?)?;
    let mut kernels = Vec::new();
    for guest in order {
        let path = directory.join(format!("{guest}.json"));
        if !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        kernels.push(Matrix::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))?);
    }
    write(&root.join(PAGE), &page::markdown(&kernels))?;
    write(&root.join(PICTURE), &picture::svg(&kernels))
}

/// The document of a matrix with its origin: one line per cell, without empty values.
fn stored(origin: &Origin, document: &str) -> Result<String, String> {
    let expected = |error: serde_json::Error| format!("expected a document of `capabilities --json`: {error}");
    let mut document: Value = serde_json::from_str(document).map_err(expected)?;
    document["guest"] = serde_json::to_value(origin).map_err(expected)?;
    let cells = document["cells"].take();
    let mut lines = Vec::new();
    for cell in cells.as_array().into_iter().flatten() {
        let mut cell = cell.clone();
        cell.as_object_mut().into_iter().for_each(|cell| cell.retain(|_, value| !value.is_null()));
        lines.push(cell.to_string());
    }
    document["cells"] = Value::Array(Vec::new());
    Ok(document.to_string().replace("\"cells\":[]", &format!("\"cells\":[\n{}\n]", lines.join(",\n"))) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    #[test]
    fn a_stored_document_is_one_cell_a_line_and_becomes_a_page() {
        let scratch = Scratch::new("capabilities");
        let cell = |way: &str, size_bytes: u64, outcome: &str, [leaf, folio]: [Option<u64>; 2]| {
            serde_json::json!({ "kind": "anonymous", "mount": null, "way": way, "size_bytes": size_bytes,
                "outcome": outcome, "leaf": leaf, "folio": folio, "depends_on_free_memory": false })
        };
        let cells = [
            cell("touch", 65536, "refused", [None, None]),
            cell("touch", 2 << 20, "large", [Some(2 << 20); 2]),
            cell("mprotect", 2 << 20, "folio_only", [Some(4096), Some(2 << 20)]),
        ];
        let document = serde_json::json!({ "kernel": "6.1", "architecture": "x86_64", "base_bytes": 4096,
            "pmd_bytes": 2 << 20, "cells": cells });
        let origin = Origin {
            guest: "a".into(),
            kernel: "linux_6.1_amd64".into(),
            emulator: "QEMU 7".into(),
            commit: "abc".into(),
            date: "2026-01-02".into(),
        };
        fs::create_dir_all(scratch.0.join("docs/evidence")).unwrap();
        keep(&scratch.0, &origin, &document.to_string(), &["a".to_owned(), "b".to_owned()]).unwrap();
        let read = |name: &str| fs::read_to_string(scratch.0.join(name)).unwrap();
        assert_eq!(read("docs/evidence/capabilities/a.json").lines().count(), 5);
        let page = read(PAGE);
        assert!(page.contains("| first touch | 2M |") && page.contains("| mprotect | (2M) |"), "{page}");
        assert!(page.contains("linux 6.1 amd64") && page.contains("abc"), "{page}");
        assert!(read(PICTURE).contains("<title>anon, touch, a: 2M</title>"));
        assert!(keep(&scratch.0, &origin, "no", &[]).unwrap_err().contains("expected a document"));
    }
}
