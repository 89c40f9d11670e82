//! The tables of a report.

use study::matrix::{Cell, Row, Set, Standing, Total};
use study::metric::Metric;
use study::stats::Effect;

use super::{Report, grounds, provenance, rows_of};
use crate::figure::{self, Change};

/// A table with its heading.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// What it shows.
    pub caption: String,
    /// The headings of its columns.
    pub header: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// All tables: the matrix of each machine, what its rows say together, published figures, and what has no figure.
pub fn sheets(report: &Report<'_>) -> Vec<Sheet> {
    let matrix = report.matrix;
    let mut sheets: Vec<Sheet> = grounds(matrix)
        .into_iter()
        .flat_map(|ground| {
            let rows: Vec<&Row> = rows_of(matrix, ground).collect();
            let place = format!("{}, {}", ground.0, provenance(ground.1));
            let totals: Vec<&Total> =
                matrix.totals.iter().filter(|total| (total.machine.as_str(), total.provenance) == ground).collect();
            [of_rows(report, &rows, &place), of_totals(&totals, &place, &matrix.baseline)]
        })
        .filter(|sheet| !sheet.rows.is_empty())
        .collect();
    sheets.extend(
        [published(&matrix.published), reasons(&matrix.rows)].into_iter().filter(|sheet| !sheet.rows.is_empty()),
    );
    sheets
}

/// A row for each workload, a column for each policy.
fn of_rows(report: &Report<'_>, rows: &[&Row], place: &str) -> Sheet {
    let matrix = report.matrix;
    let header = ["workload".to_owned(), "metric".to_owned()].into_iter().chain(matrix.policies.iter().cloned());
    let has_figure = |row: &&&Row| row.cells.iter().any(|cell| !matches!(cell.standing, Standing::None { .. }));
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

/// A cell in words.
pub(crate) fn in_cell(row: &Row, cell: &Cell) -> String {
    let median = || {
        let value = cell.medians.get(&row.metric)?;
        let known = Metric::of_every_trial();
        let metric = figure::metric(&known, &row.metric);
        Some(figure::short(*value, metric.unit))
    };
    match (&cell.standing, cell.effects.get(&row.metric)) {
        (Standing::None { .. }, _) => "none".to_owned(),
        (Standing::Baseline, _) | (_, None) => median().unwrap_or_else(|| "none".to_owned()),
        (standing, Some(effect)) => {
            let change = change(effect);
            match word(standing) {
                "" => change,
                word => format!("{change} {word}"),
            }
        }
    }
}

/// `-12.3 % (-13.1 to -11.0)`
pub(crate) fn change(effect: &Effect) -> String {
    let change = Change::of(effect);
    let range = change.range().map(|range| format!(" ({range})"));
    format!("{}{}", change.estimate(), range.unwrap_or_default())
}

/// What follows, in a word or two; empty for a model's figure.
pub(crate) fn word(standing: &Standing) -> &'static str {
    match standing {
        Standing::Baseline => "baseline",
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::Equivalent => "equivalent",
        Standing::Undecided => "undecided",
        Standing::NotAmongSoMany => "not among so many",
        Standing::NotHeld => "not held",
        Standing::WithinTracerCost => "within the tracer's cost",
        Standing::Modelled => "",
        Standing::None { .. } => "none",
    }
}

fn of_totals(totals: &[&Total], place: &str, baseline: &str) -> Sheet {
    let header = ["policy", "geometric mean", "of", "worst", "wins", "ties", "least", "by chance"];
    let line = |total: &&Total| {
        let mean = total.mean.filter(|_| total.policy != baseline);
        let wins = &total.wins;
        let of = |count: u32| if wins.races == 0 { "none".to_owned() } else { format!("{count} of {}", wins.races) };
        let worst = total.worst.as_ref().filter(|_| mean.is_some());
        let chance = format!("{:.1} ({} to {})", wins.led_by_chance, wins.chance_range.0, wins.chance_range.1);
        vec![
            total.policy.clone(),
            match mean {
                _ if total.policy == baseline => "baseline".to_owned(),
                Some(mean) => change(&mean.effect()),
                None => "none".to_owned(),
            },
            mean.map_or(String::new(), |mean| mean.of.to_string()),
            worst.map_or(String::new(), |(cost, workload)| format!("{:+.1} % {workload}", (cost - 1.0) * 100.0)),
            of(wins.won),
            of(wins.tied),
            of(wins.led),
            if wins.races == 0 { String::new() } else { chance },
        ]
    };
    let has_any = totals.iter().any(|total| total.mean.is_some());
    Sheet {
        caption: format!(
            "{place}: all workloads together, as cost (throughput inverted). Wins: it beats every other; ties: none beats it, and \
             it does not beat all; least: its estimate is the least, beside what chance alone gives, in 95 % of cases within \
             the range"
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: if has_any { totals.iter().map(line).collect() } else { Vec::new() },
    }
}

fn published(sets: &[Set]) -> Sheet {
    let header = ["published", "change there", "machine here", "change here", "that says", "source"];
    let line = |set: &Set| {
        let found = set.found.map(|(ratio, interval)| {
            let (low, high) = interval.unzip();
            change(&Effect { blocks: 0, ratio, low, high, p_adjusted: None })
        });
        vec![
            set.published.what.clone(),
            set.published.change.clone(),
            format!("{}, {}", set.machine, provenance(set.provenance)),
            found.unwrap_or_else(|| "none".to_owned()),
            set.beside.describe().to_owned(),
            set.published.source.clone(),
        ]
    };
    Sheet {
        caption: "Published figures beside these".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows: sets.iter().map(line).collect(),
    }
}

/// Why cells have no figure: cells of one row and reason together.
fn reasons(rows: &[Row]) -> Sheet {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        for cell in &row.cells {
            let Standing::None { why } = &cell.standing else { continue };
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
