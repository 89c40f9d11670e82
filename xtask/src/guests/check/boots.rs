//! Checks a study over the stores of two boots: one with leaves of 1G in the direct map, if the memory has room for them, and one
//! without.

use serde_json::Value;

use crate::guests::transcript::CheckOutput;

/// The two boots, whose stores are merged on this machine.
pub const BOOTS: [&str; 2] = ["with-1g", "without-1g"];
/// The name of the output of `study report --json` over the merged stores.
pub const REPORT: &str = "report";

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    for boot in BOOTS {
        part.output(&format!("study.{boot}"))?;
    }
    let without = leaves(part.output("meminfo.without-1g")?, "DirectMap1G");
    if without != 0 {
        return Err(format!("nogbpages left {without} kB in leaves of 1G"));
    }
    let report: Value =
        serde_json::from_str(part.output(REPORT)?).map_err(|error| format!("{REPORT}: expected JSON: {error}"))?;
    let rows = report["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let measured: Vec<&Value> =
        rows.iter().filter(|row| !row["origins"].as_array().is_none_or(Vec::is_empty)).collect();
    let Some(first) = measured.first() else { return Err("no row of the report was measured".to_owned()) };
    for row in &measured {
        let (workload, machine) = (&row["workload"], row["machine"].as_str().unwrap_or_default());
        if !machine.contains("emulated") {
            return Err(format!("{workload}: expected a machine that is emulated, found {machine:?}"));
        }
        let cells = row["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
        let conclusions: Vec<&str> =
            cells.iter().filter_map(|cell| cell["conclusion"]["conclusion"].as_str()).collect();
        let of = |name: &str| conclusions.iter().filter(|conclusion| **conclusion == name).count();
        if of("emulated") != 2 || of("emulated") + of("none") != conclusions.len() {
            return Err(format!(
                "{workload}: expected two arms whose times are an emulator's, found {}",
                conclusions.join(", ")
            ));
        }
    }
    let arms = first["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    let arms = arms.iter().filter(|cell| cell["conclusion"]["conclusion"] == "emulated");
    let arms: Vec<&str> = arms.filter_map(|cell| cell["policy"].as_str()).collect();
    let wins = report["totals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if wins.iter().any(|total| total["wins"]["races"] != 0) {
        return Err("times of an emulator were counted as wins".to_owned());
    }
    Ok(format!("{} workloads in two boots: {}; no claim is made of their times", measured.len(), arms.join(" and ")))
}

/// The value of a line in /proc/meminfo, in kB; 0 if there is no such line.
fn leaves(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    fn judged(machine: &str, conclusion: &str, of_1g: &str) -> Result<String, String> {
        let cell = |policy: &str, conclusion: &str| serde_json::json!({ "policy": policy, "conclusion": { "conclusion": conclusion } });
        let cells = [
            cell("direct-map-1g", "none"),
            cell("direct-map-mixed", "emulated"),
            cell("direct-map-2m", conclusion),
            cell("direct-map-4k", "none"),
        ];
        let row = serde_json::json!({ "workload": "x", "machine": machine, "origins": [{}], "cells": cells });
        let report = serde_json::json!({ "rows": [row], "totals": [{ "wins": { "races": 0 } }] });
        judge(&part(vec![
            ran("study.with-1g", ""),
            ran("study.without-1g", ""),
            ran("meminfo.without-1g", &format!("DirectMap2M: 5 kB\nDirectMap1G: {of_1g} kB\n")),
            ran(REPORT, &report.to_string()),
        ]))
    }

    #[test]
    fn times_of_an_emulator_are_not_compared() {
        let held = judged("boots of emulated machines", "emulated", "0").unwrap();
        assert!(held.starts_with("1 workloads in two boots: direct-map-mixed and direct-map-2m"), "{held}");
        assert!(
            judged("boots, compared within hosts", "emulated", "0").unwrap_err().contains("that is emulated, found")
        );
        assert!(
            judged("boots of emulated machines", "better", "0").unwrap_err().contains("found none, emulated, better")
        );
        assert!(judged("boots of emulated machines", "emulated", "1048576").unwrap_err().contains("1048576 kB"));
    }
}
