//! Parts that the tables of a report share: a table ([`Sheet`]), a cell in words, a change.

use study::metric::Metric;
use study::stats::Effect;
use study_files::definition::Measure;
use study_files::matrix::kernels::EMULATED;
use study_files::matrix::{Cell, Conclusion, Matrix, Reproduction, Row, Total};

use super::{MachineFigures, provenance};
use crate::figure::{self, Change};

/// A table with its heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// What the table shows.
    pub caption: String,
    /// Column headings.
    pub header: Vec<String>,
    /// Rows of cells, one per heading.
    pub rows: Vec<Vec<String>>,
}

/// The totals of one machine and provenance, one per policy.
pub(crate) fn totals_of<'a>(matrix: &'a Matrix, machine_figures: MachineFigures<'_>) -> Vec<&'a Total> {
    matrix.totals.iter().filter(|total| (total.machine.as_str(), total.provenance) == machine_figures).collect()
}

/// `a host, measured`; `a host, measured in emulation`.
pub(crate) fn place(machine_figures: MachineFigures<'_>) -> String {
    let (name, provenance) = named(machine_figures);
    format!("{name}, {provenance}")
}

/// The name of a machine, and the provenance of its figures in words.
pub(super) fn named(machine_figures: MachineFigures<'_>) -> (&str, String) {
    match machine_figures.0.strip_suffix(EMULATED) {
        Some(name) => (name, format!("{} in emulation", provenance(machine_figures.1))),
        None => (machine_figures.0, provenance(machine_figures.1).to_owned()),
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
    match (&cell.conclusion, cell.effects.get(&row.metric)) {
        (Conclusion::None { .. }, _) => "none".to_owned(),
        (Conclusion::Emulated, None) => {
            median().map_or_else(|| "none".to_owned(), |median| format!("{median} emulated"))
        }
        (Conclusion::Baseline, _) | (_, None) => median().unwrap_or_else(|| "none".to_owned()),
        (conclusion, Some(effect)) => {
            let change = change(effect);
            match word(conclusion) {
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

/// The conclusion in one or two words; empty for a model's figure, which has none.
pub(crate) fn word(conclusion: &Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Baseline => "baseline",
        Conclusion::Better => "better",
        Conclusion::Worse => "worse",
        Conclusion::Equivalent => "equivalent",
        Conclusion::Undecided => "undecided",
        Conclusion::NotAfterCorrection => "not after correction",
        Conclusion::WithinTracerCost => "within the tracer's cost",
        Conclusion::Modelled => "",
        Conclusion::Emulated => "emulated",
        Conclusion::None { .. } => "none",
    }
}

/// The share of the memory on which a policy was in force, if it was not shown to be in force on all: `held on 63 %`.
pub(crate) fn held_share(cell: &Cell) -> String {
    match cell.coverage_ratio {
        Some(ratio) => format!("held on {}", figure::share(ratio)),
        None => "unproven".to_owned(),
    }
}

/// The figure found here that corresponds to a published one.
pub(super) fn of_found(set: &Reproduction) -> String {
    let found = set.found.map(|(ratio, interval)| {
        if set.published.measure == Measure::WinShare {
            let range = interval.map(|(low, high)| format!(" ({:.0} to {:.0})", low * 100.0, high * 100.0));
            return format!("best in {:.0} %{}", ratio * 100.0, range.unwrap_or_default());
        }
        let (low, high) = interval.unzip();
        change(&Effect { blocks: 0, ratio, low, high, p_adjusted: None })
    });
    found.unwrap_or_else(|| "none".to_owned())
}

/// Maximum number of reasons in a sentence.
pub(super) const MAX_REASONS: usize = 3;

/// Why figures may differ, as the end of a sentence. Several reasons are numbered, because reasons contain commas.
pub(super) fn why(reasons: &[String]) -> String {
    let joined = match reasons {
        [] => return String::new(),
        [one] => one.clone(),
        several => {
            let numbered = several.iter().take(MAX_REASONS).enumerate();
            let shown = numbered.map(|(at, reason)| format!("({}) {reason}", at + 1)).collect::<Vec<_>>().join("; ");
            match several.len().saturating_sub(MAX_REASONS) {
                0 => shown,
                more => format!("{shown}; and {more} more"),
            }
        }
    };
    format!("; figures can differ because {joined}")
}

/// The interval of an undecided change, or a note that it has none.
pub(super) fn open_range(effect: &Effect) -> String {
    let range = Change::of(effect).range();
    range.map_or_else(|| " (too few blocks or boots for an interval)".to_owned(), |range| format!(" ({range} %)"))
}
