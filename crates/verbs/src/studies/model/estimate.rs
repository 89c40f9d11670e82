//! Estimates the duration of simulations from earlier ones of the study.

use super::ModelRow;
use super::outcome::Outcome;

/// Seconds for recording and simulating a row under `policies` policies, estimated from the accesses per second of earlier
/// simulations of the study. The trace is assumed to have as many accesses as the row's workload had on another machine, or
/// else the average of other workloads. `None` if no earlier duration is known.
pub fn estimated_s(row: &ModelRow, all: &[ModelRow], policies: usize) -> Option<f64> {
    let timed: Vec<(u64, f64)> = all.iter().flat_map(of_row).collect();
    let took_s: f64 = timed.iter().map(|(_, took_s)| took_s).sum();
    let accesses: f64 = timed.iter().map(|(accesses, _)| *accesses as f64).sum();
    if took_s <= 0.0 || accesses <= 0.0 {
        return None;
    }
    let same_workload = all.iter().filter(|other| other.workload == row.workload).flat_map(of_row).next();
    let expected = same_workload.map_or(accesses / timed.len() as f64, |(accesses, _)| accesses as f64);
    Some(expected * policies as f64 / (accesses / took_s))
}

/// The accesses and the seconds of each simulation of a row for which they are stored.
fn of_row(row: &ModelRow) -> impl Iterator<Item = (u64, f64)> + '_ {
    row.stored.values().filter_map(Outcome::timed)
}
