//! The series as a document, and a stored document as a series.

use serde_json::{Value, json};
use study::kernel_series::{Change, Pair, Series, compared};

use super::Report;

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.series/1";

/// Why a document is not a series.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It has no such shape.
    #[error("expected a document that `pagelab series --save FILE` wrote: {0}")]
    Shape(#[from] serde_json::Error),
    /// It is a document of something else, or of another version.
    #[error("expected the schema {SCHEMA}, found {0:?}; write it again with `pagelab series --save FILE`")]
    Schema(String),
    #[error(
        "expected a series with a kernel that has boots, found none; write it again with `pagelab series --save FILE`"
    )]
    Empty,
}

/// The document of a series.
pub fn document(report: &Report<'_>) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(report.series)?;
    document["schema"] = SCHEMA.into();
    let pairs = compared(&report.series.kernels, &report.series.workloads);
    document["pairs"] = pairs.iter().map(of_pair).collect();
    Ok(document)
}

/// The series of a document.
///
/// # Errors
/// The text is no such document, or has no kernel with boots.
pub fn parse(text: &str) -> Result<Series, DocumentError> {
    let document: Value = serde_json::from_str(text)?;
    match document["schema"].as_str() {
        Some(SCHEMA) => {}
        other => return Err(DocumentError::Schema(other.unwrap_or("none").to_owned())),
    }
    let series: Series = serde_json::from_value(document)?;
    match series.kernels.last() {
        Some(kernel) if !kernel.boots.is_empty() => Ok(series),
        _ => Err(DocumentError::Empty),
    }
}

fn of_pair(pair: &Pair<'_>) -> Value {
    json!({
        "old": pair.old.name,
        "new": pair.new.name,
        "changes": pair.changes.iter().map(of_change).collect::<Vec<_>>(),
        "unchanged_count": pair.same.len(),
        "only_one_has": pair.one_sided.iter().map(|(workload, figure)| format!("{figure}@{workload}")).collect::<Vec<_>>(),
    })
}

fn of_change(change: &Change) -> Value {
    json!({
        "workload": change.workload,
        "metric": change.figure,
        "old": change.old.median,
        "new": change.new.median,
        "change_ratio": change.ratio(),
        "bound": change.bound(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_stored_series_is_the_same_again() {
        let series = sample::series();
        let report = Report { series: &series, configurations: Vec::new(), version: "1" };
        let document = document(&report).unwrap();
        assert_eq!(document["pairs"][0]["changes"][0]["metric"], "faults");
        assert_eq!(parse(&document.to_string()).unwrap(), series);
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("{").contains("expected a document that `pagelab series --save FILE` wrote"));
        assert!(refused("{\"schema\": \"pagelab.capabilities/1\"}").contains("found \"pagelab.capabilities/1\""));
        assert!(refused("[]").contains("found \"none\""));
        let mut series = sample::series();
        series.kernels.clear();
        let report = Report { series: &series, configurations: Vec::new(), version: "1" };
        assert!(refused(&document(&report).unwrap().to_string()).contains("found none"));
    }
}
