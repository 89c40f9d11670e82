//! A comparison merged over boots as comma-separated values (RFC 4180): one row per boot, arm and metric.
//!
//! `docs/reference/formats/boots-csv.md` describes the columns. This is version 1; columns may be added at the end.

use std::io::{self, Write};

use policy::verdict::Holding;
use study::stats::boots::{Boot, Merged};

use crate::csv::{direction, holding, unit, write_row};
use crate::figure;

/// Names of the columns, in order.
pub const COLUMNS: [&str; 15] = [
    "host",
    "boot_id",
    "started_unix_s",
    "kernel",
    "kernel_command_line",
    "demoted_to_bytes",
    "arm",
    "label",
    "policy",
    "trials",
    "metric",
    "median",
    "unit",
    "direction",
    "holding",
];

/// Writes the header, and a row per boot, arm and metric in chronological order. A boot without observations gets one
/// row with empty metric columns.
pub fn write(merged: &Merged, mut out: impl Write) -> io::Result<()> {
    write_row(&mut out, COLUMNS.map(String::from))?;
    for boot in &merged.boots {
        let about = about(merged, boot);
        let held = holding(boot.holding.unwrap_or(Holding::Unknown)).to_string();
        let nothing = boot.medians.is_empty().then(|| std::array::from_fn(|_| String::new()));
        let medians = boot.medians.iter().map(|(name, median)| {
            let metric = figure::metric(&merged.design.metrics, name);
            [name.clone(), median.to_string(), unit(metric.unit).to_string(), direction(metric.direction).to_string()]
        });
        for figures in medians.chain(nothing) {
            write_row(&mut out, about.iter().cloned().chain(figures).chain([held.clone()]))?;
        }
    }
    out.flush()
}

fn about(merged: &Merged, boot: &Boot) -> [String; 10] {
    let arm = merged.design.arms.get(boot.arm);
    [
        boot.host.clone(),
        boot.boot_id.clone(),
        boot.started_unix_s.to_string(),
        boot.kernel.clone(),
        boot.kernel_command_line.clone(),
        boot.demoted_to.map_or_else(String::new, |leaf| leaf.bytes().to_string()),
        boot.arm.to_string(),
        arm.map_or_else(String::new, |arm| arm.label.clone()),
        arm.map_or_else(String::new, |arm| arm.policy.to_string()),
        boot.trials.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_median_of_a_boot_has_a_row() {
        let mut merged = crate::boots::sample();
        merged.boots[0].kernel_command_line = "quiet, \"rw\"".into();
        merged.boots[1].medians.clear();
        let mut bytes = Vec::new();
        write(&merged, &mut bytes).unwrap();
        let rows = crate::csv::read(std::str::from_utf8(&bytes).unwrap());
        assert_eq!(rows[0], COLUMNS);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
        let expected: usize = merged.boots.iter().map(|boot| boot.medians.len().max(1)).sum();
        assert_eq!(rows.len(), 1 + expected);
        let of_first = &rows[1..=merged.boots[0].medians.len()];
        for (row, (name, median)) in of_first.iter().zip(&merged.boots[0].medians) {
            assert_eq!((&row[4], &row[10]), (&"quiet, \"rw\"".to_string(), name));
            assert_eq!(row[11].parse::<f64>().unwrap().to_bits(), median.to_bits());
        }
    }
}
