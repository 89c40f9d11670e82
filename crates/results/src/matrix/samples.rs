//! All samples of a study, one row each, for other tools: CSV, JSON lines, Parquet.

use std::borrow::Cow;
use std::io::{self, Write};

use parquet::errors::ParquetError;
use serde_json::json;
use study::comparison::Comparison;

use crate::csv::{holding, provenance, unit, write_row};
use crate::figure;
use crate::parquet::{Column, ColumnType, ParquetFile};
use crate::rows;

/// A comparison whose trials are exported.
#[derive(Clone, Debug)]
pub struct SampleSource<'a> {
    /// Name of the workload.
    pub workload: &'a str,
    /// The machine, as the report names it.
    pub machine: &'a str,
    /// The comparison with its trials.
    pub comparison: &'a Comparison,
}

/// Names of the columns, in order.
pub const CSV_COLUMNS: [&str; 16] = [
    "study",
    "workload",
    "machine",
    "comparison",
    "label",
    "block",
    "attempt",
    "started_s",
    "counted",
    "metric",
    "value",
    "unit",
    "provenance",
    "holding",
    "policy",
    "variant",
];

/// One metric of one trial.
struct Sample<'a> {
    of: &'a SampleSource<'a>,
    label: String,
    block: u32,
    attempt: u32,
    started_s: f64,
    counted: bool,
    metric: String,
    value: f64,
    unit: &'static str,
    provenance: &'static str,
    holding: &'static str,
    policy: String,
    variant: String,
}

fn samples<'a>(of: &'a SampleSource<'a>) -> Vec<Sample<'a>> {
    let comparison = of.comparison;
    let rows = rows::rows(comparison);
    let mut samples = Vec::new();
    for record in &comparison.trials {
        let row = rows.get(record.trial.arm);
        let counted = row.is_some_and(|row| row.counted.iter().any(|one| std::ptr::eq(*one, record)));
        let arm = comparison.design.arms.get(record.trial.arm);
        let label = arm.map(|arm| arm.label.clone()).unwrap_or_default();
        let policy = arm.map(|arm| arm.policy.to_string()).unwrap_or_default();
        let variant = arm.and_then(|arm| arm.variant.as_ref()).map(|variant| variant.name.clone()).unwrap_or_default();
        samples.extend(record.observations.iter().map(|observation| Sample {
            of,
            label: label.clone(),
            block: record.trial.block,
            attempt: record.trial.attempt,
            started_s: record.started_s,
            counted,
            metric: observation.metric.clone(),
            value: observation.value,
            unit: unit(figure::metric(&comparison.design.metrics, &observation.metric).unit),
            provenance: provenance(observation.provenance),
            holding: holding(record.verdict.holding),
            policy: policy.clone(),
            variant: variant.clone(),
        }));
    }
    samples
}

/// Writes every sample as comma-separated values (RFC 4180).
pub fn csv(study: &str, all: &[SampleSource<'_>], mut out: impl Write) -> io::Result<()> {
    write_row(&mut out, CSV_COLUMNS.map(String::from))?;
    for sample in all.iter().flat_map(samples) {
        let fields = [
            study.to_owned(),
            sample.of.workload.to_owned(),
            sample.of.machine.to_owned(),
            sample.of.comparison.id.to_string(),
            sample.label,
            sample.block.to_string(),
            sample.attempt.to_string(),
            sample.started_s.to_string(),
            sample.counted.to_string(),
            sample.metric,
            sample.value.to_string(),
            sample.unit.to_owned(),
            sample.provenance.to_owned(),
            sample.holding.to_owned(),
            sample.policy,
            sample.variant,
        ];
        write_row(&mut out, fields)?;
    }
    out.flush()
}

/// Writes every sample as a JSON object on a line of its own.
pub fn json_lines(study: &str, all: &[SampleSource<'_>], mut out: impl Write) -> io::Result<()> {
    for sample in all.iter().flat_map(samples) {
        let line = json!({
            "study": study,
            "workload": sample.of.workload,
            "machine": sample.of.machine,
            "comparison": sample.of.comparison.id,
            "label": sample.label,
            "block": sample.block,
            "attempt": sample.attempt,
            "started_s": sample.started_s,
            "counted": sample.counted,
            "metric": sample.metric,
            "value": sample.value,
            "unit": sample.unit,
            "provenance": sample.provenance,
            "holding": sample.holding,
            "policy": sample.policy,
            "variant": sample.variant,
        });
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Maximum number of rows in a row group of a Parquet file.
const GROUP: usize = 200_000;

/// Writes every sample as a Parquet file.
pub fn parquet<W: Write + Send>(study: &str, all: &[SampleSource<'_>], to: W) -> Result<W, ParquetError> {
    use ColumnType::{Bool, F64, I64, Text, U32};
    let types = [Text, Text, Text, I64, Text, U32, U32, F64, Bool, Text, F64, Text, Text, Text, Text, Text];
    let columns: Vec<(&str, ColumnType)> = CSV_COLUMNS.into_iter().zip(types).collect();
    let mut file = ParquetFile::new(to, &columns)?;
    let samples: Vec<Sample<'_>> = all.iter().flat_map(samples).collect();
    for group in samples.chunks(GROUP) {
        let text =
            |of: &dyn Fn(&Sample<'_>) -> String| Column::Text(group.iter().map(|one| Cow::from(of(one))).collect());
        file.write(&[
            text(&|_| study.to_owned()),
            text(&|one| one.of.workload.to_owned()),
            text(&|one| one.of.machine.to_owned()),
            Column::I64(group.iter().map(|one| one.of.comparison.id).collect()),
            text(&|one| one.label.clone()),
            Column::U32(group.iter().map(|one| one.block).collect()),
            Column::U32(group.iter().map(|one| one.attempt).collect()),
            Column::F64(group.iter().map(|one| one.started_s).collect()),
            Column::Bool(group.iter().map(|one| one.counted).collect()),
            text(&|one| one.metric.clone()),
            Column::F64(group.iter().map(|one| one.value).collect()),
            text(&|one| one.unit.to_owned()),
            text(&|one| one.provenance.to_owned()),
            text(&|one| one.holding.to_owned()),
            text(&|one| one.policy.clone()),
            text(&|one| one.variant.clone()),
        ])?;
    }
    file.finish()
}
