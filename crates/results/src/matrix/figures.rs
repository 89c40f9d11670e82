//! Tables of figures other than the primary metric: those that programs print, and the memory cost of a policy.

use std::collections::BTreeSet;

use study::metric::{Metric, Provenance, names};
use study_files::matrix::{Cell, Conclusion, Matrix, Row};

use super::cells::{Sheet, change, held_share, place, word};
use super::{MachineFigures, rows_of};
use crate::figure;

/// Metrics of memory: of a host, of a guest, and of a model.
const MEMORY: [&str; 2] = [names::PEAK_RESIDENT_BYTES, names::PAGE_TABLE_SEEN_BYTES];
const IN_GUESTS: [&str; 6] = [
    names::USER_INSTRUCTIONS,
    names::KERNEL_INSTRUCTIONS,
    names::MINOR_FAULTS,
    names::LARGE_PAGE_BYTES,
    names::PEAK_RESIDENT_BYTES,
    names::PAGE_TABLE_SEEN_BYTES,
];
const MODELLED_MEMORY: [&str; 4] =
    ["resident_peak_bytes", "held_unmapped_peak_bytes", "all_table_peak_bytes", "touched_peak_bytes"];

/// Figures that programs print in addition to the primary metric, such as percentiles of latency in addition to
/// throughput.
pub fn of_program(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Sheet {
    let caption = format!(
        "{}: further figures that the programs print: medians under {}, and changes against it with their {} intervals",
        place(machine_figures),
        matrix.baseline,
        figure::confidence(0.95)
    );
    sheet(matrix, machine_figures, caption, program_metrics)
}

/// A run of each workload under the baseline: its time, how much runs differ, its memory; and how much of the memory each policy
/// got. Empty for models, emulators and boots. `columns`: the noun for the columns of the matrix.
pub fn of_runs(matrix: &Matrix, machine_figures: MachineFigures<'_>, columns: &str) -> Sheet {
    let runs: Vec<(&Row, &Cell)> =
        rows_of(matrix, machine_figures).filter_map(|row| Some((row, baseline_of_runs(row)?))).collect();
    let has_coverage = |policy: &&String| {
        runs.iter().flat_map(|(row, _)| &row.cells).any(|cell| cell.policy == **policy && cell.coverage_ratio.is_some())
    };
    let policies: Vec<&String> = matrix.policies.iter().filter(has_coverage).collect();
    let line = |(row, baseline): &(&Row, &Cell)| {
        let held = |policy: &&String| {
            let cell = row.cells.iter().find(|cell| cell.policy == **policy);
            cell.and_then(|cell| cell.coverage_ratio).map(figure::share).unwrap_or_default()
        };
        let start =
            [row.workload.clone(), median(baseline, names::WALL_S), spread(baseline), median(baseline, MEMORY[0])];
        start.into_iter().chain(policies.iter().map(held)).collect()
    };
    let header = ["workload", "wall time", "spread", "peak memory"].map(str::to_owned).into_iter();
    Sheet {
        caption: format!(
            "{}: a run under {}; spread: from the fastest to the slowest run, as a share of the median; then the share of the memory \
             concerned that each {columns} got",
            place(machine_figures),
            matrix.baseline
        ),
        header: header.chain(policies.iter().map(|policy| (*policy).clone())).collect(),
        rows: runs.iter().map(line).collect(),
    }
}

/// The baseline of a row whose figures come from runs on a processor.
fn baseline_of_runs(row: &Row) -> Option<&Cell> {
    let baseline = row.cells.iter().find(|cell| cell.conclusion == Conclusion::Baseline)?;
    let is_of_runs = row.provenance != Provenance::Modelled && !row.is_emulated && baseline.basis.boots == 0;
    is_of_runs.then_some(baseline)
}

fn median(cell: &Cell, name: &str) -> String {
    let value = cell.medians.get(name).map(|value| figure::short(*value, figure::metric(&[], name).unit));
    value.unwrap_or_default()
}

/// How far apart the wall times of a cell's runs are, as a share of their median.
fn spread(cell: &Cell) -> String {
    let times = cell.basis.ranges.get(names::WALL_S).zip(cell.medians.get(names::WALL_S));
    let share = times.map(|((least, most), median)| format!("{:.0} %", 100.0 * (most - least) / median));
    share.unwrap_or_default()
}

/// The memory and the page tables of each workload. In guests also faults, and the instructions of the program and the
/// kernel.
pub fn of_memory(matrix: &Matrix, machine_figures: MachineFigures<'_>) -> Sheet {
    let is_of_guests =
        rows_of(matrix, machine_figures).any(|row| memory(row).iter().any(|name| name == names::LARGE_PAGE_BYTES));
    let (what, note) = if is_of_guests {
        ("further figures", "")
    } else {
        ("memory and page tables", ". What is more than under base pages is bloat")
    };
    let caption = format!("{}: {what} under {}, and changes against it{note}", place(machine_figures), matrix.baseline);
    sheet(matrix, machine_figures, caption, memory)
}

/// The metrics that only the row's program knows, without the primary metric.
pub(super) fn program_metrics(row: &Row) -> Vec<String> {
    let of_every_trial = Metric::of_every_trial().into_iter().map(|metric| metric.name);
    let general: BTreeSet<String> = of_every_trial.chain(IN_GUESTS.map(str::to_owned)).collect();
    let all: BTreeSet<&String> = match row.provenance {
        Provenance::Modelled => BTreeSet::new(),
        _ => row.cells.iter().flat_map(|cell| cell.effects.keys()).collect(),
    };
    let is_own =
        |name: &&&String| !general.contains(**name) && names::size_of_pages(name).is_none() && ***name != row.metric;
    all.iter().filter(is_own).map(|name| (*name).clone()).collect()
}

/// The metrics of memory that a row has.
pub(super) fn memory(row: &Row) -> Vec<String> {
    let has = |name: &str| row.cells.iter().any(|cell| cell.medians.contains_key(name));
    let names: &[&str] = match row.provenance {
        Provenance::Modelled => &MODELLED_MEMORY,
        _ if has(names::LARGE_PAGE_BYTES) => &IN_GUESTS,
        _ => &MEMORY,
    };
    let known: BTreeSet<&String> = row.cells.iter().flat_map(|cell| cell.medians.keys()).collect();
    let by_size = || known.iter().filter(|name| names::size_of_pages(name).is_some()).map(|name| (*name).clone());
    let with_sizes = |name: &&str| {
        let sizes: Vec<String> = if *name == names::LARGE_PAGE_BYTES { by_size().collect() } else { Vec::new() };
        [(*name).to_owned()].into_iter().chain(sizes)
    };
    names.iter().filter(|name| has(name) && **name != row.metric).flat_map(with_sizes).collect()
}

/// One line per workload and metric, one column per policy.
fn sheet(
    matrix: &Matrix,
    machine_figures: MachineFigures<'_>,
    caption: String,
    metrics: fn(&Row) -> Vec<String>,
) -> Sheet {
    let header = ["workload", "figure"].map(str::to_owned).into_iter().chain(matrix.policies.iter().cloned());
    let lines = |row: &Row| {
        let line = |metric: String| {
            let cells = row.cells.iter().map(|cell| in_words(cell, &metric));
            [row.workload.clone(), figure::title(&metric)].into_iter().chain(cells).collect::<Vec<String>>()
        };
        metrics(row).into_iter().map(line).collect::<Vec<_>>()
    };
    Sheet { caption, header: header.collect(), rows: rows_of(matrix, machine_figures).flat_map(lines).collect() }
}

/// The baseline's median, or another policy's change. The conclusion about the primary metric does not hold for other
/// metrics, with one exception: if no figure can be attributed to the policy, that holds for all.
fn in_words(cell: &Cell, metric: &str) -> String {
    let median = cell.medians.get(metric).map(|value| figure::short(*value, figure::metric(&[], metric).unit));
    match (&cell.conclusion, cell.effects.get(metric)) {
        (Conclusion::None { .. }, _) => "none".to_owned(),
        (conclusion @ Conclusion::WithinTracerCost, Some(effect)) => format!("{} {}", change(effect), word(conclusion)),
        (_, Some(effect)) if !cell.is_held => format!("{}, {}", change(effect), held_share(cell)),
        (_, Some(effect)) => change(effect),
        (_, None) => median.unwrap_or_else(|| "none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use study::stats::Effect;

    use super::*;

    fn matrix(provenance: Provenance) -> Matrix {
        let policies = ["base".to_owned(), "thp".to_owned()];
        let mut row = Row { provenance, metric: "get_per_s".into(), ..Row::without("redis", "a host", &policies, "") };
        let effect =
            |ratio| Effect { blocks: 9, ratio, low: Some(ratio - 0.1), high: Some(ratio + 0.1), p_adjusted: None };
        row.cells[0].conclusion = Conclusion::Baseline;
        row.cells[1].conclusion = Conclusion::Better;
        for (metric, value, ratio) in
            [("get_per_s", 1e5, 1.2), ("get_p99_ms", 0.5, 0.8), (names::WALL_S, 1.0, 0.9), (MEMORY[0], 4096.0, 1.5)]
        {
            row.cells[0].medians.insert(metric.into(), value);
            row.cells[1].effects.insert(metric.into(), effect(ratio));
        }
        Matrix::of(&policies, "base", vec![row], &[])
    }

    #[test]
    fn shows_percentiles_with_intervals_next_to_a_throughput() {
        let sheet = of_program(&matrix(Provenance::Measured), ("a host", Provenance::Measured));
        assert_eq!(sheet.rows.len(), 1, "{:?}", sheet.rows);
        assert_eq!(sheet.rows[0][..3], ["redis", "get_p99_ms", "0.500"].map(str::to_owned));
        assert!(sheet.rows[0][3].starts_with("-20") && sheet.rows[0][3].contains("-30"), "{:?}", sheet.rows);
        assert!(of_program(&matrix(Provenance::Modelled), ("a host", Provenance::Modelled)).rows.is_empty());
    }

    #[test]
    fn a_run_has_its_time_its_spread_and_what_policies_got() {
        let mut matrix = matrix(Provenance::Measured);
        matrix.rows[0].cells[0].basis.ranges.insert(names::WALL_S.into(), (0.95, 1.15));
        matrix.rows[0].cells[1].coverage_ratio = Some(0.87);
        let sheet = of_runs(&matrix, ("a host", Provenance::Measured), "policy");
        assert_eq!(sheet.header, ["workload", "wall time", "spread", "peak memory", "thp"]);
        assert_eq!(sheet.rows, [["redis", "1.000 s", "20 %", "4K", "87 %"]]);
        matrix.rows[0].is_emulated = true;
        assert!(of_runs(&matrix, ("a host", Provenance::Measured), "policy").rows.is_empty());
    }

    #[test]
    fn memory_of_a_model_lists_held_and_unmapped_bytes() {
        let mut matrix = matrix(Provenance::Modelled);
        for (cell, held) in matrix.rows[0].cells.iter_mut().zip([0.0, 61440.0]) {
            cell.medians.insert("resident_peak_bytes".into(), 65536.0);
            cell.medians.insert("held_unmapped_peak_bytes".into(), held);
            cell.medians.insert("touched_peak_bytes".into(), 4096.0);
        }
        let sheet = of_memory(&matrix, ("a host", Provenance::Modelled));
        let named: Vec<&str> = sheet.rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(named, ["mapped, at most", "held and not mapped, at most", "touched, at most"]);
        // The ratio to zero is undefined, so the value itself is shown.
        assert_eq!(sheet.rows[1][2..], ["0".to_owned(), "60K".to_owned()], "{:?}", sheet.rows);
    }

    #[test]
    fn lists_memory_by_workload() {
        let sheet = of_memory(&matrix(Provenance::Measured), ("a host", Provenance::Measured));
        assert_eq!(sheet.rows[0][..3], ["redis", "peak memory", "4K"].map(str::to_owned), "{:?}", sheet.rows);
        assert!(sheet.rows[0][3].starts_with("+50"), "{:?}", sheet.rows);
    }
}
