//! Weighs the memory cost of a policy against its speed, and finds the policies that no other one beats in both.

use super::geometric::{Geometric, MIN_WORKLOADS, geometric};
use super::row::{Cell, Conclusion, Row};
use study::comparison::Design;
use study::metric::{Provenance, names};

/// Mean speed and memory of a policy over the workloads of a machine that have both figures.
#[derive(Clone, Debug, PartialEq)]
pub struct CostAndMemory {
    /// Cost of the primary metric relative to the baseline; throughput inverted.
    pub cost: Geometric,
    /// Peak memory including page tables, relative to the baseline.
    pub memory: Geometric,
    /// Whether the policy is on the Pareto front: by the estimates, no other policy has less cost and no more memory, or less
    /// memory and no more cost.
    pub is_front: bool,
}

/// The metrics of memory: the resident peak, and the metrics that are added to it. For a host these are page tables;
/// for a model these are page tables and memory that is held but not mapped.
const MEMORY: [(&str, &[&str]); 2] = [
    (names::PEAK_RESIDENT_BYTES, &[names::PAGE_TABLE_SEEN_BYTES]),
    ("resident_peak_bytes", &["all_table_peak_bytes", "held_unmapped_peak_bytes"]),
];

impl Cell {
    /// Peak memory, page tables and other held memory in bytes, each at its own peak. Unobserved parts are not included.
    pub fn memory_bytes(&self) -> Option<f64> {
        MEMORY.into_iter().find_map(|(resident, added)| {
            let added: f64 = added.iter().filter_map(|name| self.medians.get(*name)).sum();
            Some(self.medians.get(resident)? + added)
        })
    }
}

/// The trade of each policy, in order. Both means of the baseline are 1. `None` if no workload has both figures, and of a
/// measured policy with a few.
pub(super) fn trades(rows: &[&Row], policies: usize) -> Vec<Option<CostAndMemory>> {
    let mut trades: Vec<Option<CostAndMemory>> = (0..policies).map(|at| trade(rows, at)).collect();
    let points: Vec<Option<(f64, f64)>> =
        trades.iter().map(|trade| trade.as_ref().map(|one| (one.cost.ratio, one.memory.ratio))).collect();
    for (trade, own) in trades.iter_mut().zip(&points) {
        if let (Some(trade), Some(own)) = (trade, own) {
            trade.is_front = !points.iter().flatten().any(|other| beats(*other, *own));
        }
    }
    trades
}

fn beats(one: (f64, f64), other: (f64, f64)) -> bool {
    one.0 <= other.0 && one.1 <= other.1 && one != other
}

fn trade(rows: &[&Row], at: usize) -> Option<CostAndMemory> {
    let both: Vec<(f64, f64)> = rows.iter().filter_map(|row| of_row(row, at)).collect();
    let is_model = rows.iter().any(|row| row.provenance == Provenance::Modelled);
    // One of a few workloads can decide their mean. The figures of a model have no noise.
    if !is_model && (2..MIN_WORKLOADS).contains(&both.len()) {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| {
        let mean = geometric(&both.iter().map(of).collect::<Vec<_>>(), Design::CONFIDENCE)?;
        Some(Geometric { interval: mean.interval.filter(|_| !is_model), ..mean })
    };
    Some(CostAndMemory { cost: mean(|both| both.0)?, memory: mean(|both| both.1)?, is_front: false })
}

/// Cost and memory of a policy for a workload, relative to the baseline.
fn of_row(row: &Row, at: usize) -> Option<(f64, f64)> {
    let cell = &row.cells[at];
    let of_baseline = row.cells.iter().find(|cell| cell.conclusion == Conclusion::Baseline)?.memory_bytes()?;
    if cell.conclusion == Conclusion::Baseline {
        return (of_baseline > 0.0).then_some((1.0, 1.0));
    }
    let cost = row.cost_ratio(cell).filter(|_| cell.has_claim())?;
    let memory = cell.memory_bytes()? / of_baseline;
    (memory.is_finite() && memory > 0.0).then_some((cost, memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::stats::Effect;

    #[test]
    fn memory_of_a_model_includes_held_and_unmapped_bytes() {
        let mut cell = Cell::without("contig-64k", String::new());
        assert_eq!(cell.memory_bytes(), None);
        for (name, bytes) in
            [("held_unmapped_peak_bytes", 3.0), ("all_table_peak_bytes", 20.0), ("resident_peak_bytes", 100.0)]
        {
            cell.medians.insert(name.into(), bytes);
        }
        assert_eq!(cell.memory_bytes(), Some(123.0));
        // Measured memory is used unchanged.
        cell.medians.insert(names::PEAK_RESIDENT_BYTES.into(), 7.0);
        assert_eq!(cell.memory_bytes(), Some(7.0));
    }

    fn row(ratios: &[(f64, f64)]) -> Row {
        let policies: Vec<String> = (0..=ratios.len()).map(|at| format!("p{at}")).collect();
        let mut row = Row::without("w", "m", &policies, "nothing");
        row.cells[0].conclusion = Conclusion::Baseline;
        row.cells[0].medians.insert(names::PEAK_RESIDENT_BYTES.into(), 90.0);
        row.cells[0].medians.insert(names::PAGE_TABLE_SEEN_BYTES.into(), 10.0);
        for (cell, (cost, memory)) in row.cells[1..].iter_mut().zip(ratios) {
            cell.conclusion = Conclusion::Better;
            cell.medians.insert(names::PEAK_RESIDENT_BYTES.into(), 100.0 * memory);
            let effect = Effect { blocks: 9, ratio: *cost, low: None, high: None, p_adjusted: None };
            cell.effects.insert(names::WALL_S.into(), effect);
        }
        row
    }

    #[test]
    fn the_front_has_the_policies_that_no_other_beats_in_both() {
        let rows = [(); MIN_WORKLOADS].map(|()| row(&[(0.8, 1.5), (0.9, 1.6), (0.7, 2.0)]));
        let of_few = trades(&rows[1..].iter().collect::<Vec<_>>(), 4);
        assert!(of_few.iter().all(Option::is_none), "one of a few can decide their mean");
        let trades = trades(&rows.iter().collect::<Vec<_>>(), 4);
        let front: Vec<bool> = trades.iter().map(|trade| trade.as_ref().unwrap().is_front).collect();
        assert_eq!(front, [true, true, false, true]);
        let second = trades[1].as_ref().unwrap();
        assert!((second.memory.ratio - 1.5).abs() < 1e-12 && (second.cost.ratio - 0.8).abs() < 1e-12);
    }

    #[test]
    fn there_is_no_trade_without_both_figures() {
        let mut bare = row(&[(0.8, 1.5)]);
        bare.cells[1].conclusion = Conclusion::WithinTracerCost;
        assert_eq!(trades(&[&bare], 2)[1], None, "the change is not the policy's");
        bare.cells[0].medians.clear();
        assert_eq!(trades(&[&bare], 2)[0], None, "the baseline's memory is unknown");
    }
}
