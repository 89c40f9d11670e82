//! One row of the matrix in a mail: absolute figures with their spread, changes with their intervals, and a reason for
//! every missing figure.

use policy::cause::{Cause, CauseShare};
use policy::size::format_bytes;
use policy::verdict::Holding;
use study::metric::{Provenance, Unit, names};
use study::stats::Effect;
use study::stats::boots::count_of_boots;
use study_files::matrix::{Cell, Conclusion, Row};

use super::super::cells::word;
use super::super::figures;
use super::layout::{Columns, folded, item};
use crate::figure::{self, Change};

/// Columns for the name of an arm.
const NAME: usize = 18;
const HEADS: [(&str, usize); 4] = [("median", 11), ("least..most", 18), ("change", 9), ("95% interval", 16)];
/// Maximum number of causes named for an arm.
const CAUSES: usize = 2;

/// Which metrics are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Times, faults, memory, and metrics that programs print.
    All,
    /// Times, and metrics that programs print.
    Times,
}

/// A row in full.
pub fn of_row(row: &Row, extent: Extent) -> String {
    let blocks = if row.blocks > 0 { format!(" ({} blocks)", row.blocks) } else { String::new() };
    let mut text = folded(&format!("{}{blocks}", row.workload), 2) + "\n" + &columns().heads();
    let metrics = metrics(row, extent);
    // The baseline is shown first; in the study it may be any policy.
    let (old, new): (Vec<&Cell>, Vec<&Cell>) =
        row.cells.iter().partition(|cell| cell.conclusion == Conclusion::Baseline);
    let cells: Vec<&Cell> = old.into_iter().chain(new).collect();
    for metric in &metrics {
        text.push_str(&(folded(&figure::title(metric), 2) + "\n"));
        cells.iter().filter(|cell| has_figure(cell)).for_each(|cell| text.push_str(&of_cell(cell, metric)));
    }
    text.push('\n');
    cells.iter().for_each(|cell| text.push_str(&item(&format!("{}: {}", cell.policy, outcome(row, cell)))));
    holes(row, &metrics).iter().for_each(|hole| text.push_str(&item(hole)));
    text + "\n"
}

pub fn has_figure(cell: &Cell) -> bool {
    !matches!(cell.conclusion, Conclusion::None { .. })
}

/// The metrics of a row: the primary metric first, and no time if the row was measured in emulation.
fn metrics(row: &Row, extent: Extent) -> Vec<String> {
    let times = [names::WALL_S, names::SYSTEM_S, names::USER_S].map(str::to_owned);
    let further = match extent {
        Extent::All => [vec![names::MINOR_FAULTS.to_owned()], figures::memory(row)].concat(),
        Extent::Times => Vec::new(),
    };
    let mut metrics = vec![row.metric.clone()];
    for name in times.into_iter().chain(figures::program_metrics(row)).chain(further) {
        let is_observed = row.cells.iter().any(|cell| cell.medians.contains_key(&name));
        if is_observed && !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    metrics.retain(|name| !row.is_emulated || unit(name) != Unit::Seconds);
    metrics
}

fn unit(metric: &str) -> Unit {
    figure::metric(&[], metric).unit
}

/// The line of an arm: `thp   1.100 s   1.001..1.200 s   -10.8%   -12.0..-9.1`.
fn of_cell(cell: &Cell, metric: &str) -> String {
    let unit = unit(metric);
    let median = cell.medians.get(metric).map_or("none".to_owned(), |value| figure::short(*value, unit));
    let range = cell.basis.ranges.get(metric).map(|(least, most)| span(*least, *most, unit)).unwrap_or_default();
    let (change, interval) = match (cell.effects.get(metric), &cell.conclusion) {
        (Some(effect), conclusion) if *conclusion != Conclusion::Baseline => (estimate(effect), interval(effect)),
        (None, Conclusion::Baseline) | (Some(_), _) => (String::new(), String::new()),
        (None, _) => ("none".to_owned(), String::new()),
    };
    columns().row(&format!("  {}", cell.policy), &[median, range, change, interval])
}

/// The columns of an arm's figures.
fn columns() -> Columns {
    Columns { name: NAME, figures: HEADS.map(|(head, width)| (head.to_owned(), width)).to_vec() }
}

/// `1.001..1.200 s`
fn span(least: f64, most: f64, unit: Unit) -> String {
    let [least, most] = [least, most].map(|value| figure::short(value, unit));
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((number, one)), Some((_, other))) if one == other => format!("{number}..{most}"),
        _ => format!("{least}..{most}"),
    }
}

/// `-12.3%`, `41 times`
pub fn estimate(effect: &Effect) -> String {
    Change::of(effect).estimate().replace(" %", "%")
}

/// `-13.4..-11.2`; empty if the effect has no interval.
pub fn interval(effect: &Effect) -> String {
    Change::of(effect).range().map(|range| range.replace(" to ", "..")).unwrap_or_default()
}

/// The outcome of an arm: `better; 15 runs; held on 97 % of the memory`, or why it has no figure.
fn outcome(row: &Row, cell: &Cell) -> String {
    if let Conclusion::None { why } = &cell.conclusion {
        return format!("no figure: {why}");
    }
    let basis = &cell.basis;
    let word = if row.provenance == Provenance::Modelled { "modelled" } else { word(&cell.conclusion) };
    let runs = match (basis.runs, basis.boots) {
        (0, _) => None,
        (runs, 0) => Some(count_of_runs(runs)),
        (runs, boots) => Some(format!("{} in {}", count_of_runs(runs), count_of_boots(boots))),
    };
    let parts = [Some(word.to_owned()), runs, pages(cell)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn count_of_runs(runs: u32) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}

/// Why an arm has no figure, or did not get the pages of its policy; `None` if it has both.
pub fn why_not(cell: &Cell) -> Option<String> {
    match (&cell.conclusion, cell.basis.holding) {
        (Conclusion::None { why }, _) => Some(format!("no figure: {why}")),
        (_, Some(Holding::NotHeld | Holding::Partly | Holding::Unknown)) => pages(cell),
        _ => None,
    }
}

/// Whether the arm got the pages of its policy, and if not, why.
fn pages(cell: &Cell) -> Option<String> {
    let share = cell.coverage_ratio.map(figure::share);
    let on_share = share.as_ref().map(|share| format!(" on {share} of the memory on average")).unwrap_or_default();
    let held = match cell.basis.holding? {
        Holding::NotAsked => return None,
        Holding::Held => return Some(format!("held{on_share}")),
        Holding::NotHeld => share
            .map_or("not held".to_owned(), |share| format!("not held ({share} of the memory asked for, on average)")),
        Holding::Partly if share.is_none() => "held on a part of the memory".to_owned(),
        Holding::Partly => format!("held{on_share}, less than was asked for"),
        Holding::Unknown => "not known whether it was held".to_owned(),
    };
    Some(format!("{held}: {}", causes(cell)))
}

fn causes(cell: &Cell) -> String {
    // The list of causes can contain a proof, which is not a cause.
    let causes = cell.basis.causes.iter().filter(|share| share.cause != Cause::ProvenByThpDisable).collect::<Vec<_>>();
    let clause = |share: &&CauseShare| {
        let bytes = share.bytes.map(|bytes| format!(" ({} a run)", format_bytes(bytes)));
        share.cause.describe() + &bytes.unwrap_or_default()
    };
    let named: Vec<String> = causes.iter().take(CAUSES).map(clause).collect();
    match causes.len().saturating_sub(CAUSES) {
        _ if causes.is_empty() => "the cause is not known".to_owned(),
        0 => named.join(", and "),
        more => format!("{}, and {more} more", named.join(", ")),
    }
}

/// Why single cells of the table are empty. Arms without any figure are explained elsewhere.
fn holes(row: &Row, metrics: &[String]) -> Vec<String> {
    let known: Vec<&Cell> = row.cells.iter().filter(|cell| has_figure(cell)).collect();
    let compared = || known.iter().filter(|cell| cell.conclusion != Conclusion::Baseline);
    let names = |cells: Vec<&Cell>| cells.iter().map(|cell| cell.policy.as_str()).collect::<Vec<_>>().join(", ");
    let mut holes = Vec::new();
    for metric in metrics {
        let title = figure::title(metric);
        let unseen: Vec<&Cell> = known.iter().copied().filter(|cell| !cell.medians.contains_key(metric)).collect();
        if !unseen.is_empty() {
            holes.push(format!("{title}: none for {}, because no run of it has this figure", names(unseen)));
        }
        let lacks = |cell: &&&Cell| cell.medians.contains_key(metric) && !cell.effects.contains_key(metric);
        if compared().any(|cell| lacks(&cell)) {
            holes.push(format!("{title}: no change where a run has 0: the ratio is undefined"));
        }
    }
    let has_no_interval = |cell: &&&Cell| cell.effects.get(&row.metric).is_some_and(|effect| effect.low.is_none());
    if compared().any(|cell| has_no_interval(&cell)) {
        holes.push(why_no_interval(row, &known));
    }
    if row.is_emulated {
        holes.push("no time: the machine was emulated, and its times are those of the emulator".to_owned());
    }
    holes
}

fn why_no_interval(row: &Row, known: &[&Cell]) -> String {
    let boots = known.iter().map(|cell| cell.basis.boots).min().unwrap_or(0);
    match (row.provenance, boots) {
        (Provenance::Modelled, _) => "no interval and no spread: a model has one figure".to_owned(),
        (_, 1) => "no interval: one boot of a kernel is one observation; --boots gives more".to_owned(),
        (_, 0) => "no interval: too few blocks".to_owned(),
        (_, boots) => format!("no interval: {} are too few for one", count_of_boots(boots)),
    }
}
