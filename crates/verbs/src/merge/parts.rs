//! Reads the measurements of boots from stores and documents.

use std::io::Read;
use std::path::Path;

use results::input;
use results::store::Store;
use serde_json::Value;
use study::stats::boots::MeasuredBoots;

use crate::failure::{Failure, error_chain, report};
use crate::output::read_store;

/// The header of an SQLite file (<https://sqlite.org/fileformat.html>).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Maximum size of a document, in which a comparison takes some KiB per trial.
const MAX_DOCUMENT_BYTES: u64 = 256 << 20;

/// The boots in a file: a store, or the output of `compare --arm-of-boot --json` or `merge --json`.
pub fn of_file(path: &Path) -> Result<Vec<MeasuredBoots>, Failure> {
    let unreadable = |error: input::Error| Failure::about(path, error);
    let mut begin = Vec::new();
    let read = input::open(path).map_err(unreadable)?.take(SQLITE.len() as u64).read_to_end(&mut begin);
    read.map_err(|error| unreadable(error.into()))?;
    if begin == SQLITE {
        return read_store(path)?.map_or(Ok(Vec::new()), |store| of_store(&store));
    }
    let document = input::read(path, MAX_DOCUMENT_BYTES).map_err(unreadable)?;
    let part = of_document(&document).map_err(|why| Failure::Input(format!("{}: {why}", path.display())))?;
    Ok(vec![part])
}

/// Why a file cannot be merged.
#[derive(Debug, thiserror::Error)]
enum PartError {
    #[error(
        "expected a store of pagelab or a document {schema} (from compare --arm-of-boot --json), found {0}",
        schema = results::boots::SCHEMA
    )]
    Unexpected(String),
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

fn of_document(bytes: &[u8]) -> Result<MeasuredBoots, PartError> {
    let text = std::str::from_utf8(bytes).map_err(|_| PartError::Unexpected("bytes that are not UTF-8".to_owned()))?;
    let document: Value =
        serde_json::from_str(text).map_err(|error| PartError::Unexpected(format!("invalid JSON ({error})")))?;
    match &document["schema"] {
        schema if schema == results::boots::SCHEMA => Ok(serde_json::from_value(document)?),
        schema => Err(PartError::Unexpected(format!("the schema {schema}"))),
    }
}

/// The boots in a store. A comparison that cannot be read is left out with a warning, and the other comparisons still
/// count.
pub fn of_store(store: &Store) -> Result<Vec<MeasuredBoots>, Failure> {
    let mut parts = Vec::new();
    for summary in store.list().map_err(Failure::input)? {
        match store.load(summary.id) {
            Ok(comparison) => {
                parts.extend(Some(&comparison).filter(|one| one.design.is_over_boots()).and_then(MeasuredBoots::of));
            }
            Err(error) => {
                let why = error_chain(&error);
                report(format_args!("pagelab: comparison {} is left out: {}", summary.id, results::printable(&why)));
            }
        }
    }
    Ok(parts)
}
