//! Checks a comparison for which pagelab boots a guest itself: the number of first-touch faults must match the kernel's base page
//! size, and times must be instruction counts.

use serde_json::Value;

use super::number;
use crate::guests::transcript::CheckOutput;

/// The name of the check. Its system contains only pagelab, so pagelab must be static.
pub const CHECK: &str = "sysroot";
/// The name of the comparison.
pub const COMPARISON: &str = "comparison";
/// The workload that is compared.
pub const WORKLOAD: [&str; 6] = ["pagelab", "workload", "mmap-churn", "--bytes=16M", "--rounds=4", "--seed=1"];
/// Bytes touched in a trial.
const TOUCHED_BYTES: u64 = 4 * (16 << 20);

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let page = number(part, "page")?;
    let document: Value = serde_json::from_str(part.output(COMPARISON)?)
        .map_err(|error| format!("{COMPARISON}: expected JSON: {error}"))?;
    let of = |metric: &str| median(&document, "base", metric);
    let (faults, touch) = (of("minor_faults")?, of("touch_instructions")?);
    let least = TOUCHED_BYTES / page;
    // In addition to the faults of the workload, there are those of starting the program: some hundred pages of 4K.
    if !(least as f64..least as f64 + 1000.0).contains(&faults) {
        return Err(format!(
            "base: expected {least} faults for base pages of {page}, and at most 1000 more, found {faults}"
        ));
    }
    if touch <= 0.0 {
        return Err(format!("base: expected more than 0 instructions to touch all pages, found {touch}"));
    }
    let words = document.to_string();
    match ["wall_s", "cpu_s", "touch_ns"].into_iter().find(|time| words.contains(&format!("\"{time}\""))) {
        Some(time) => Err(format!("expected no times of an emulated guest, found {time}")),
        None => Ok(format!("base: {faults} faults for {least} base pages, {touch:.0} instructions to touch 16M")),
    }
}

/// The median of a metric under a policy, from a document with one row per kernel and one cell per policy.
fn median(document: &Value, policy: &str, metric: &str) -> Result<f64, String> {
    found(document, policy, metric).ok_or_else(|| format!("{COMPARISON}: no {metric} under {policy}"))
}

fn found(document: &Value, policy: &str, metric: &str) -> Option<f64> {
    match document {
        Value::Array(all) => all.iter().find_map(|one| found(one, policy, metric)),
        Value::Object(fields) if fields.get("policy").is_some_and(|name| name == policy) => {
            fields.get("medians").and_then(|medians| medians[metric].as_f64())
        }
        Value::Object(fields) => fields.values().find_map(|one| found(one, policy, metric)),
        _ => None,
    }
}
