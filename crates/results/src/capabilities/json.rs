//! The matrix of capabilities as a JSON document.

use policy::capability::Matrix;
use serde_json::Value;

/// The schema of the document.
pub const SCHEMA: &str = "pagelab.capabilities/1";

/// Why a JSON document is not a matrix of capabilities.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text is not JSON, or the document lacks fields of a matrix or has wrong values in them.
    #[error("expected a document of `pagelab capabilities --json`: {0}")]
    Shape(#[from] serde_json::Error),
    /// The document is of another kind, or of another version.
    #[error("expected the schema {SCHEMA}, found {0:?}; write it again with this pagelab")]
    Schema(String),
}

/// The document of a matrix.
pub fn document(matrix: &Matrix) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(matrix)?;
    document["schema"] = SCHEMA.into();
    Ok(document)
}

/// Parses the JSON document of a matrix.
pub fn parse(text: &str) -> Result<Matrix, DocumentError> {
    let document: Value = serde_json::from_str(text)?;
    match document["schema"].as_str() {
        Some(SCHEMA) => Ok(serde_json::from_value(document)?),
        other => Err(DocumentError::Schema(other.unwrap_or("none").to_owned())),
    }
}
