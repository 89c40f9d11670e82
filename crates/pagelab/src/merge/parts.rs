//! What boots measured, out of stores and documents.

use std::io::Read;
use std::path::Path;

use results::input;
use results::store::Store;
use serde_json::Value;
use study::stats::boots::Part;

use crate::failure::{Failure, say, told};
use crate::output::read_store;

/// How a file of SQLite begins (<https://sqlite.org/fileformat.html>).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Bytes that a document may have: each comparison in it has some KiB for each trial.
const MAX_DOCUMENT_BYTES: u64 = 256 << 20;

/// What a file says of boots: a store, or what `compare --arm-of-boot --json` or `merge --json` printed.
///
/// # Errors
/// It cannot be read, or is neither.
pub fn of_file(path: &Path) -> Result<Vec<Part>, Failure> {
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

/// A file that is no part of a merge.
#[derive(Debug, thiserror::Error)]
enum NoPart {
    /// Neither a store nor a document of this kind.
    #[error(
        "expected a store of pagelab or a document {schema} (compare --arm-of-boot --json), found {0}",
        schema = results::boots::SCHEMA
    )]
    Other(String),
    /// A document of this kind that is not as pagelab writes it.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
}

fn of_document(bytes: &[u8]) -> Result<Part, NoPart> {
    let text = std::str::from_utf8(bytes).map_err(|_| NoPart::Other("neither".to_owned()))?;
    let document: Value = serde_json::from_str(text).map_err(|error| NoPart::Other(format!("no JSON ({error})")))?;
    match &document["schema"] {
        schema if schema == results::boots::SCHEMA => Ok(serde_json::from_value(document)?),
        schema => Err(NoPart::Other(format!("the schema {schema}"))),
    }
}

/// What a store says of boots. A comparison that cannot be read is left out, which is said: what others say stands.
///
/// # Errors
/// The store cannot be read.
pub fn of_store(store: &Store) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    for summary in store.list().map_err(Failure::input)? {
        match store.load(summary.id) {
            Ok(comparison) => {
                parts.extend(Some(&comparison).filter(|one| one.design.is_over_boots()).and_then(Part::of));
            }
            Err(error) => {
                let why = told(&error);
                say(format_args!("pagelab: comparison {} is left out: {}", summary.id, results::printable(&why)));
            }
        }
    }
    Ok(parts)
}
