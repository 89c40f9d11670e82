//! The observations of a comparison as comma-separated values (RFC 4180): one row per trial and metric.
//!
//! `docs/reference/formats/compare-csv.md` describes the columns. This is version 1; columns may be added at the end.

use std::io::{self, Write};

use policy::Exit;
use policy::verdict::{Holding, Peak};
use study::comparison::Comparison;
use study::metric::{Direction, Provenance, Unit};
use study::trial::TrialRecord;

use crate::{figure, rows};

/// Names of the columns, in order.
pub const COLUMNS: [&str; 23] = [
    "comparison",
    "started_unix_s",
    "arm",
    "label",
    "policy",
    "block",
    "position",
    "attempt",
    "started_s",
    "counted",
    "rejected",
    "metric",
    "value",
    "unit",
    "direction",
    "provenance",
    "holding",
    "coverage_ratio",
    "exit",
    "peak_seen_bytes",
    "peak_least_bytes",
    "peak_most_bytes",
    "variant",
];

/// Writes the header, and a row per observation in execution order. A trial without observations gets one row with
/// empty metric columns. An unsupported arm has no trials, hence no rows.
pub fn write(comparison: &Comparison, mut out: impl Write) -> io::Result<()> {
    write_row(&mut out, COLUMNS.map(String::from))?;
    let rows = rows::rows(comparison);
    for record in &comparison.trials {
        let row = rows.get(record.trial.arm);
        let counted = row.is_some_and(|row| row.counted.iter().any(|one| std::ptr::eq(*one, record)));
        let about = about(comparison, record, counted);
        let outcome = outcome(comparison, record);
        if record.observations.is_empty() {
            write_row(
                &mut out,
                about.iter().cloned().chain(std::array::from_fn::<_, 5, _>(|_| String::new())).chain(outcome.clone()),
            )?;
        }
        for observation in &record.observations {
            let metric = figure::metric(&comparison.design.metrics, &observation.metric);
            let figures = [
                observation.metric.clone(),
                observation.value.to_string(),
                unit(metric.unit).to_string(),
                direction(metric.direction).to_string(),
                provenance(observation.provenance).to_string(),
            ];
            write_row(&mut out, about.iter().cloned().chain(figures).chain(outcome.clone()))?;
        }
    }
    out.flush()
}

fn about(comparison: &Comparison, record: &TrialRecord, counted: bool) -> [String; 11] {
    let trial = record.trial;
    let arm = comparison.design.arms.get(trial.arm);
    let rejected: Vec<&str> = record.rejected.iter().map(|change| change.path.as_str()).collect();
    [
        comparison.id.to_string(),
        comparison.started_unix_s.to_string(),
        trial.arm.to_string(),
        arm.map_or_else(String::new, |arm| arm.label.clone()),
        arm.map_or_else(String::new, |arm| arm.policy.to_string()),
        trial.block.to_string(),
        trial.position.to_string(),
        trial.attempt.to_string(),
        record.started_s.to_string(),
        counted.to_string(),
        rejected.join(" "),
    ]
}

fn outcome(comparison: &Comparison, record: &TrialRecord) -> [String; 7] {
    let variant = comparison.design.arms.get(record.trial.arm).and_then(|arm| arm.variant.as_ref());
    let of_peak = |bytes: fn(Peak) -> u64| record.verdict.peak.map_or_else(String::new, |peak| bytes(peak).to_string());
    [
        holding(record.verdict.holding).to_string(),
        record.verdict.coverage_ratio().map_or_else(String::new, |ratio| ratio.to_string()),
        match record.answer.exit {
            _ if record.answer.too_slow => "too slow".to_string(),
            Exit::Code(code) => code.to_string(),
            Exit::Signal(signal) => format!("signal {signal}"),
        },
        of_peak(|peak| peak.seen_bytes),
        of_peak(|peak| peak.least_bytes),
        of_peak(|peak| peak.most_bytes),
        variant.map_or_else(String::new, |variant| variant.name.clone()),
    ]
}

pub(crate) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "seconds",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
        Unit::Ratio => "ratio",
        Unit::Custom => "custom",
    }
}

pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Lower => "lower",
        Direction::Higher => "higher",
    }
}

/// The provenance as a word.
pub(crate) fn provenance(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Measured => "measured",
        Provenance::Modelled => "modelled",
        Provenance::Derived => "derived",
    }
}

pub(crate) fn holding(holding: Holding) -> &'static str {
    match holding {
        Holding::Held => "held",
        Holding::Partly => "partly",
        Holding::NotHeld => "not_held",
        Holding::Unknown => "unknown",
        Holding::NotAsked => "not_asked",
    }
}

pub(crate) fn write_row(out: &mut impl Write, fields: impl IntoIterator<Item = String>) -> io::Result<()> {
    let fields: Vec<String> = fields.into_iter().map(quote).collect();
    write!(out, "{}\r\n", fields.join(","))
}

fn quote(field: String) -> String {
    if field.contains([',', '"', '\r', '\n']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

/// Parses RFC 4180, character by character.
#[cfg(test)]
pub(crate) fn read(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.push(chars.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted => {
                assert_eq!(chars.next(), Some('\n'));
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c => field.push(c),
        }
    }
    assert!(!quoted && row.is_empty() && field.is_empty());
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn written(comparison: &Comparison) -> Vec<Vec<String>> {
        let mut bytes = Vec::new();
        write(comparison, &mut bytes).unwrap();
        read(std::str::from_utf8(&bytes).unwrap())
    }

    #[test]
    fn every_observation_has_a_row() {
        for mut comparison in [sample::comparison(), sample::hostile()] {
            comparison.design.arms[3].label = "a,\"b\"\r\nc ".to_string();
            comparison.trials[7].observations.clear();
            let rows = written(&comparison);
            assert_eq!(rows[0], COLUMNS);
            assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
            let column = |name: &str| COLUMNS.iter().position(|column| *column == name).unwrap();
            let (metric, value, label) = (column("metric"), column("value"), column("label"));
            let mut read = rows[1..].iter();
            for record in &comparison.trials {
                for observation in &record.observations {
                    let row = read.next().unwrap();
                    assert_eq!(row[metric], observation.metric);
                    assert_eq!(row[value].parse::<f64>().unwrap().to_bits(), observation.value.to_bits());
                    assert_eq!(row[label], comparison.design.arms[record.trial.arm].label);
                }
                if record.observations.is_empty() {
                    assert_eq!(read.next().unwrap()[metric], "");
                }
            }
            assert_eq!(read.next(), None);
        }
    }

    #[test]
    fn the_writers_error_is_reported() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(write(&sample::empty(), Full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
