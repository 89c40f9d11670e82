//! Phases of dirty logging in instructions: the same in every run.

use serde_json::Value;

use super::kvm::document;
use crate::guests::transcript::Part;

/// How far two runs may be apart, as a ratio of the longer one.
const TOLERANCE: f64 = 0.01;
/// The guest reads a clock of 62.5 MHz: how far the same may be apart in two readings, each at its begin and its end.
const TICKS: u64 = 2 * 16;
/// Phases that put other memslots in place, and wait until nobody reads the old ones (`kvm_swap_active_memslots`,
/// virt/kvm/kvm_main.c): how many instructions another thread may take meanwhile. Linux 7.2 takes 18,500 in one cycle of five and
/// 25,000 in the next.
const WAITING: [&str; 2] = ["enable", "disable"];
const WAIT: u64 = 8_000;

pub fn judge(part: &Part) -> Result<String, String> {
    let (mut seen, mut apart, mut waited) = (Vec::new(), 0.0_f64, 0);
    for ran in part.ran.iter().filter(|ran| ran.name.ends_with(".first")) {
        let chunk = ran.name.trim_end_matches(".first");
        let [first, second] = ["first", "second"].map(|time| document(part, &format!("{chunk}.{time}")));
        let (first, second) = (phases(&first?), phases(&second?));
        for ((name, one), (_, other)) in first.iter().zip(&second) {
            let difference = one.abs_diff(*other).saturating_sub(TICKS);
            let waits = if WAITING.contains(&name.as_str()) { difference.min(WAIT) } else { 0 };
            let ratio = (difference - waits) as f64 / (*one).max(*other).max(1) as f64;
            if ratio > TOLERANCE {
                return Err(format!("{chunk}: {name} took {one} and {other} instructions"));
            }
            (apart, waited) = (apart.max(ratio), waited.max(waits));
        }
        let phases: Vec<String> = first.iter().map(|(name, count)| format!("{name} {count}")).collect();
        seen.push(format!("{chunk}: {}", phases.join(", ")));
    }
    match seen.is_empty() {
        true => Err("nothing ran".to_owned()),
        false => Ok(format!(
            "{:.2} % apart at most, and {waited} in the waits of enable and disable; instructions of {}",
            apart * 100.0,
            seen.join("; ")
        )),
    }
}

/// The phases that were repeated, in order, with the median of their instructions: QEMU's clock goes on by a nanosecond with each.
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
            let often = |name: &str| serde_json::json!({ "name": name, "wall_s": wall_s, "walls_s": [wall_s, wall_s] });
            serde_json::json!({ "phases": [once, often("clear"), often("disable")] }).to_string()
        };
        let guest = |first: f64, second: f64| {
            judge(&part(vec![ran("split-0.first", &run(first)), ran("split-0.second", &run(second))]))
        };
        let of = "instructions of split-0: clear 250000000, disable 250000000";
        let apart = |ratio: &str, waited: u64| {
            format!("{ratio} % apart at most, and {waited} in the waits of enable and disable; {of}")
        };
        assert_eq!(guest(0.25, 0.250_001).unwrap(), apart("0.00", 968));
        assert_eq!(guest(0.25, 0.252).unwrap(), apart("0.79", 8000));
        assert!(guest(0.25, 0.254).unwrap_err().contains("split-0: clear took 250000000 and 254000000"));
        assert!(judge(&part(vec![])).is_err());
    }

    #[test]
    fn a_wait_may_be_longer_and_nothing_else() {
        let run = |clear: u64, disable: u64| {
            let phase = |name: &str, instructions: u64| {
                let wall_s = instructions as f64 / 1e9;
                serde_json::json!({ "name": name, "wall_s": wall_s, "walls_s": [wall_s, wall_s] })
            };
            serde_json::json!({ "phases": [phase("clear", clear), phase("disable", disable)] }).to_string()
        };
        let guest = |first: (u64, u64), second: (u64, u64)| {
            let (first, second) = (run(first.0, first.1), run(second.0, second.1));
            judge(&part(vec![ran("split-0.first", &first), ran("split-0.second", &second)]))
        };
        assert!(guest((90_000, 18_500), (90_000, 25_100)).unwrap().contains("and 6568 in the waits"));
        assert!(guest((90_000, 18_500), (90_000, 28_500)).unwrap_err().contains("disable took 18500 and 28500"));
        assert!(guest((90_000, 18_500), (96_500, 18_500)).unwrap_err().contains("clear took 90000 and 96500"));
    }
}
