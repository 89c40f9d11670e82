//! Reads Parquet files with other tools, for the tests.

use std::fs;
use std::process::Command;

use super::common::needs;

/// Reads a Parquet file with DuckDB, or with pandas and pyarrow: number of rows, sum of values, number of distinct metrics, number
/// of counted rows.
const READ: &str = r#"
import sys
try:
    import duckdb
    count, total, metrics, counted = duckdb.sql(
        "SELECT count(*), sum(value), count(DISTINCT metric), count(*) FILTER (counted) FROM read_parquet('%s')" % sys.argv[1]
    ).fetchall()[0]
except ImportError:
    import pandas
    table = pandas.read_parquet(sys.argv[1])
    count, total = len(table), table.value.sum()
    metrics, counted = table.metric.nunique(), int(table.counted.sum())
print(count, repr(float(total)), metrics, counted)
"#;

/// The variable in which `cargo xtask test` passes a directory with DuckDB, which it installs from the Python package index.
const MODULES: &str = "PAGELAB_TEST_MODULES";

/// Checks that other tools read the same samples from a Parquet file as from a CSV file, with one row for each sample.
pub fn is_read_by_others(parquet: &str, csv: &str) {
    let python = |code: &str, argument: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", code, argument]).envs(std::env::var_os(MODULES).map(|modules| ("PYTHONPATH", modules)));
        command.output().ok().filter(|output| output.status.success())
    };
    let has = |modules: &str| python(&format!("import {modules}"), "").is_some();
    if !needs(&[(
        "duckdb, or pandas with pyarrow, which Debian does not package; `cargo xtask test` installs duckdb by pip",
        has("duckdb") || has("pandas, pyarrow"),
    )]) {
        return;
    }
    let read = python(READ, parquet).expect("it can be read");
    let text = fs::read_to_string(csv).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let at = |name: &str| header.iter().position(|one| *one == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == header.len()), "no text of this study has a comma");
    let total: f64 = rows.iter().map(|row| row[at("value")].parse::<f64>().unwrap()).sum();
    let metrics: std::collections::BTreeSet<&str> = rows.iter().map(|row| row[at("metric")]).collect();
    let counted = rows.iter().filter(|row| row[at("counted")] == "true").count();
    let printed = String::from_utf8_lossy(&read.stdout).into_owned();
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(
        [words[0], words[2], words[3]],
        [rows.len(), metrics.len(), counted].map(|n| n.to_string()),
        "{printed}"
    );
    let read_total: f64 = words[1].parse().unwrap();
    assert!((read_total - total).abs() <= total.abs() * 1e-9, "{read_total} {total}");
}
