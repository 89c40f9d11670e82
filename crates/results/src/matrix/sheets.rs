//! The tables of a report ([`sheets`]), which most of its forms show.

use study::guest::NO_STUDY;
use study::stats::Effect;
use study_files::matrix::{Conclusion, Matrix, Reproduction, Row, Total};

use super::answer::differences_of_figures;
use super::cells::{MAX_REASONS, Sheet, change, in_cell, of_found, place, totals_of};
use super::{Report, all_machine_figures, counted, explained, figures, fits, further, of_origin, rows_of, series};
use crate::figure::{self, Change};

/// All tables: for each machine the matrix, other figures that programs print, totals, memory against speed and by
/// workload; then boots, variants, counted work, series of sizes, published figures, and missing figures.
pub fn sheets(report: &Report<'_>) -> Vec<Sheet> {
    let of_matrix = |matrix| of_matrix(matrix, report.columns_of(matrix), has_totals(report));
    let of_others = report.others().flat_map(of_matrix);
    let published = of_origin(report).into_iter().chain([published(report.published()), all_differences(report)]);
    let reasons = report.others().fold(reasons(&report.matrix.rows), |all, other| {
        let rows = all.rows.into_iter().chain(self::reasons(&other.rows).rows).collect();
        Sheet { rows, ..all }
    });
    let counted = report.counted.iter().flat_map(|counted_costs| {
        counted::of_origin(counted_costs).into_iter().chain(counted::others(counted_costs)).collect::<Vec<_>>()
    });
    let last = [further::of_limits(&report.matrix.rows), reasons];
    let of_policies = report.policies().into_iter().flat_map(of_matrix);
    let sizes = |machine_figures| fits::of_sizes(report.matrix, machine_figures, &report.definition.memory_sizes_bytes);
    let small = all_machine_figures(report.matrix).into_iter().map(sizes);
    let together = further::of_correlations(report.matrix);
    let of_series = series::sheets(&report.series);
    let of_cells = of_policies.chain([explained::sheet(report)]).chain(small).chain([together]).chain(of_others);
    let all = of_cells.chain(counted).chain(of_series).chain(published).chain(last);
    all.filter(|sheet| !sheet.rows.is_empty()).collect()
}

/// Whether rows are combined. Those of a comparison of kernels are policies of one program, which are alternatives: their mean means
/// nothing.
pub(super) fn has_totals(report: &Report<'_>) -> bool {
    report.definition.name != NO_STUDY
}

/// The tables of a matrix, machine by machine. `columns`: the noun for its columns.
fn of_matrix(matrix: &Matrix, columns: &str, has_totals: bool) -> Vec<Sheet> {
    let of_machine = |machine_figures| {
        let rows: Vec<&Row> = rows_of(matrix, machine_figures).collect();
        let place = place(machine_figures);
        let totals = if has_totals { totals_of(matrix, machine_figures) } else { Vec::new() };
        [
            of_rows(matrix, &rows, &place),
            figures::of_program(matrix, machine_figures),
            of_totals(&totals, &place, &matrix.baseline, columns),
            further::of_trades(&totals, &place, columns),
            if has_totals { figures::of_runs(matrix, machine_figures, columns) } else { Sheet::default() },
            figures::of_memory(matrix, machine_figures),
        ]
    };
    all_machine_figures(matrix).into_iter().flat_map(of_machine).collect()
}

/// A row per workload, a column per policy.
fn of_rows(matrix: &Matrix, rows: &[&Row], place: &str) -> Sheet {
    let header = ["workload".to_owned(), "metric".to_owned()].into_iter().chain(matrix.policies.iter().cloned());
    let has_figure = |row: &&&Row| row.cells.iter().any(|cell| !matches!(cell.conclusion, Conclusion::None { .. }));
    let line = |row: &&Row| {
        let cells = row.cells.iter().map(|cell| in_cell(row, cell));
        [row.workload.clone(), figure::title(&row.metric)].into_iter().chain(cells).collect()
    };
    Sheet {
        caption: format!(
            "{place}: medians under {}, and changes against it with their {} intervals",
            matrix.baseline,
            figure::confidence(0.95)
        ),
        header: header.collect(),
        rows: rows.iter().filter(has_figure).map(line).collect(),
    }
}

fn of_totals(totals: &[&Total], place: &str, baseline: &str, columns: &str) -> Sheet {
    let header = [columns, "geometric mean", "of", "workloads like these", "worst", "wins", "ties", "lowest estimate"];
    let line = |total: &&Total| {
        let mean = total.mean.filter(|_| total.policy != baseline);
        let wins = &total.wins;
        let of = |count: u32| if wins.races == 0 { "none".to_owned() } else { format!("{count} of {}", wins.races) };
        let worst = total.worst.as_ref().filter(|_| mean.is_some());
        let (low, high) = wins.chance_range;
        let led = match wins.races {
            0 => of(wins.led),
            _ => format!("{} ({low} to {high})", of(wins.led)),
        };
        vec![
            total.policy.clone(),
            match mean {
                _ if total.policy == baseline => "baseline".to_owned(),
                Some(_) if total.has_too_few() => "too few workloads".to_owned(),
                Some(mean) => change(&mean.effect()),
                None => "none".to_owned(),
            },
            mean.map_or(String::new(), |mean| mean.of.to_string()),
            mean.and_then(|mean| mean.like_these).map(range).unwrap_or_default(),
            worst.map_or(String::new(), |(cost, workload)| format!("{:+.1} % {workload}", (cost - 1.0) * 100.0)),
            of(wins.won),
            of(wins.tied),
            led,
        ]
    };
    let has_any = totals.iter().any(|total| total.mean.is_some());
    Sheet {
        caption: format!(
            "{place}: all workloads together, as cost (throughput inverted). Geometric mean: its interval comes from the errors of measuring \
             these workloads, and needs six of them. Workloads like these: the interval from the differences between the workloads. \
             Wins: the policy beats every other one. Ties: none beats it, and it does not beat all. Lowest estimate: on how many \
             workloads its estimate is the lowest, shown or not; in brackets, how many that would be in 95 % of cases if the policies did \
             not differ"
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: if has_any { totals.iter().map(line).collect() } else { Vec::new() },
    }
}

/// `-13.1 to -11.0`
fn range((low, high): (f64, f64)) -> String {
    let effect = Effect { blocks: 0, ratio: (low * high).sqrt(), low: Some(low), high: Some(high), p_adjusted: None };
    Change::of(&effect).range().unwrap_or_default()
}

fn published<'a>(sets: impl Iterator<Item = &'a Reproduction>) -> Sheet {
    let header = ["published", "change there", "machine here", "change here", "result", "source"];
    let line = |set: &Reproduction| {
        vec![
            set.published.what.clone(),
            set.published.change.clone(),
            place((&set.machine, set.provenance)),
            of_found(set),
            set.describe().to_owned(),
            set.published.source.clone(),
        ]
    };
    Sheet {
        caption: "Published figures compared with these".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: sets.map(line).collect(),
    }
}

/// All known reasons why figures here can differ from the published ones, if the sentence on the origin's claim has not all of them.
/// Those of counted work are in its own table.
pub(super) fn all_differences(report: &Report<'_>) -> Sheet {
    let all = if report.published().next().is_some() { differences_of_figures(report) } else { Vec::new() };
    let rows = if all.len() > MAX_REASONS { all.into_iter().map(|reason| vec![reason]).collect() } else { Vec::new() };
    Sheet {
        caption: "Why figures here can differ from the published ones".to_owned(),
        header: vec!["reason".to_owned()],
        rows,
    }
}

/// Why cells have no figure. Cells of a row with the same reason are combined.
pub(super) fn reasons(rows: &[Row]) -> Sheet {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        for cell in &row.cells {
            let Conclusion::None { why } = &cell.conclusion else { continue };
            match lines.last_mut().filter(|line| line[0] == row.workload && line[1] == row.machine && line[3] == *why) {
                Some(line) => line[2] = format!("{}, {}", line[2], cell.policy),
                None => lines.push(vec![row.workload.clone(), row.machine.clone(), cell.policy.clone(), why.clone()]),
            }
        }
    }
    Sheet {
        caption: "No figure".to_owned(),
        header: ["workload", "machine", "policy", "why"].map(str::to_owned).to_vec(),
        rows: lines,
    }
}
