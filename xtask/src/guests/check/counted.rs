//! Checks the phases of dirty logging, timed in instructions: every run must have nearly the same result.

use serde_json::Value;

use super::kvm::document;
use crate::guests::transcript::CheckOutput;

/// The largest allowed difference between two runs, as a ratio of the longer one.
const TOLERANCE: f64 = 0.01;
/// The largest allowed difference between two intervals, in nanoseconds of the clock. The guest reads a clock of 62.5 MHz, with
/// ticks of 16 ns, at the beginning and at the end of each interval.
const TICKS: u64 = 2 * 16;

pub fn judge(part: &CheckOutput) -> Result<String, String> {
    let (mut seen, mut apart) = (Vec::new(), 0.0_f64);
    for ran in part.ran.iter().filter(|ran| ran.name.ends_with(".first")) {
        let chunk = ran.name.trim_end_matches(".first");
        let [first, second] = ["first", "second"].map(|time| document(part, &format!("{chunk}.{time}")));
        let (first, second) = (phases(&first?), phases(&second?));
        for ((name, one), (_, other)) in first.iter().zip(&second) {
            let ratio = one.abs_diff(*other).saturating_sub(TICKS) as f64 / (*one).max(*other).max(1) as f64;
            if ratio > TOLERANCE {
                return Err(format!("{chunk}: {name} took {one} and {other} instructions"));
            }
            apart = apart.max(ratio);
        }
        let phases: Vec<String> = first.iter().map(|(name, count)| format!("{name} {count}")).collect();
        seen.push(format!("{chunk}: {}", phases.join(", ")));
    }
    if seen.is_empty() {
        Err("nothing ran".to_owned())
    } else {
        Ok(format!("{:.2} % apart at most; instructions of {}", apart * 100.0, seen.join("; ")))
    }
}

/// The phases that were repeated, in order, with the median of their instructions. QEMU's clock advances by one nanosecond per
/// instruction.
fn phases(document: &Value) -> Vec<(String, u64)> {
    let phases = document["phases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |phase: &Value| {
        let nanoseconds = phase["wall_s"].as_f64().unwrap_or(0.0) * 1e9;
        (phase["name"].as_str().unwrap_or_default().to_owned(), nanoseconds.round() as u64)
    };
    let is_repeated = |phase: &&Value| phase["walls_s"].as_array().is_some_and(|walls| walls.len() > 1);
    phases.iter().filter(is_repeated).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{part, ran};
    use super::*;

    #[test]
    fn runs_that_differ_are_named_with_their_phase() {
        let run = |wall_s: f64| {
            let once = serde_json::json!({ "name": "populate", "wall_s": wall_s * 2.0, "walls_s": [wall_s * 2.0] });
            let often = serde_json::json!({ "name": "enable", "wall_s": wall_s, "walls_s": [wall_s, wall_s] });
            serde_json::json!({ "phases": [once, often] }).to_string()
        };
        let guest = |first: f64, second: f64| {
            judge(&part(vec![ran("split-0.first", &run(first)), ran("split-0.second", &run(second))]))
        };
        assert_eq!(guest(0.25, 0.250_001).unwrap(), "0.00 % apart at most; instructions of split-0: enable 250000000");
        assert_eq!(guest(0.25, 0.252).unwrap(), "0.79 % apart at most; instructions of split-0: enable 250000000");
        assert!(guest(0.25, 0.254).unwrap_err().contains("split-0: enable took 250000000 and 254000000"));
        assert!(judge(&part(vec![])).is_err());
    }
}
