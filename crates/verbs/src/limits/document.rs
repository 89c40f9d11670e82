//! The limits of policies as a JSON document, schema `pagelab.limits/1`.

use std::ffi::OsString;

use platform::Charges;
use serde::Serialize;
use serde_json::Value;

use super::{Limit, Measured};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    command: Vec<String>,
    kernel: String,
    precision_ratio: f64,
    policies: Vec<OfPolicy>,
}

#[derive(Serialize)]
struct OfPolicy {
    policy: String,
    limit_bytes: Option<u64>,
    too_small_bytes: Option<u64>,
    too_small_outcome: Option<String>,
    smallest_enough_bytes: Option<u64>,
    runs: Option<u32>,
    peak_bytes: Option<u64>,
    at_peak: Option<AtPeak>,
    why_none: Option<String>,
}

#[derive(Serialize)]
struct AtPeak {
    total_bytes: u64,
    anonymous_bytes: u64,
    file_bytes: u64,
    shmem_bytes: u64,
    huge_bytes: u64,
    kernel_bytes: Option<u64>,
    tables_bytes: Option<u64>,
}

/// The JSON document of `pagelab limits --json`.
pub fn document(command: &[OsString], kernel: &str, precision_ratio: f64, measured: &[Measured]) -> Value {
    let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let policies = measured.iter().map(of_policy).collect();
    let document =
        Document { schema: "pagelab.limits/1", command, kernel: kernel.to_owned(), precision_ratio, policies };
    serde_json::to_value(document).unwrap_or_default()
}

fn of_policy(one: &Measured) -> OfPolicy {
    let limit: Option<&Limit> = one.limit.as_ref().ok();
    OfPolicy {
        policy: one.policy.to_string(),
        limit_bytes: limit.map(|limit| limit.found.limit_bytes),
        too_small_bytes: limit.and_then(|limit| limit.found.too_small_bytes),
        too_small_outcome: limit.and_then(|limit| limit.failed.as_ref()).map(|run| run.outcome()),
        smallest_enough_bytes: limit.map(|limit| limit.found.smallest_enough_bytes),
        runs: limit.map(|limit| limit.found.runs),
        peak_bytes: one.unlimited.map(|run| run.peak_bytes),
        at_peak: one.unlimited.map(|run| at_peak(run.at_peak)),
        why_none: one.limit.as_ref().err().cloned(),
    }
}

fn at_peak(charges: Charges) -> AtPeak {
    let Charges { total_bytes, anonymous_bytes, file_bytes, shmem_bytes, huge_bytes, kernel_bytes, tables_bytes } =
        charges;
    AtPeak { total_bytes, anonymous_bytes, file_bytes, shmem_bytes, huge_bytes, kernel_bytes, tables_bytes }
}

#[cfg(test)]
mod tests {
    use policy::Exit;
    use study::memory_limit::SearchResult;

    use super::*;
    use crate::limits::run::Run;

    const PAGE: &str = include_str!("../../../../docs/reference/formats/limits.md");

    fn check(value: &Value) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                assert!(PAGE.contains(&format!("`{key}`")), "{key} is not in docs/reference/formats/limits.md");
                check(value);
            }),
            Value::Array(list) => list.iter().for_each(check),
            _ => {}
        }
    }

    #[test]
    fn the_reference_has_every_key() {
        let unlimited = Run {
            exit: Exit::Code(0),
            is_too_slow: false,
            oom_kills: 0,
            wall_s: 1.0,
            peak_bytes: 1 << 20,
            at_peak: Charges::default(),
            limits_reached_above: 0,
            has_left: false,
        };
        let found = SearchResult {
            limit_bytes: 1 << 20,
            too_small_bytes: Some(1 << 19),
            smallest_enough_bytes: 1 << 20,
            runs: 3,
        };
        let failed = Some(Run { oom_kills: 1, ..unlimited });
        let limit = Ok(Limit { found, failed });
        let measured = Measured { policy: policy::Policy::DEFAULT, unlimited: Some(unlimited), limit };
        let document = document(&["true".into()], "6.18", 0.02, &[measured]);
        check(&document);
        assert_eq!(document["policies"][0]["too_small_outcome"], "out of memory");
    }
}
