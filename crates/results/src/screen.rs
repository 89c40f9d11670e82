//! The first screen of a comparison: one line per policy, the result in a sentence, the notes that change how these are to be read, and
//! the advice. Everything else is in [`crate::table`].

mod columns;

use policy::verdict::Holding;
use study::comparison::{Comparison, Design};
use study::metric::{Metric, Unit, names};
use study::stats::Outcome;

use crate::emphasis::{Emphasis, Line, Span, folded, without_emphasis};
use crate::figure::{self, Change};
use crate::rows::{self, Row};
use crate::table::notes::{self, Note};
use crate::text::printable;
use crate::{advice, explained, sentence, shares};
use columns::Column;

/// Minimum width for which lines are laid out; a narrower terminal wraps them itself.
const MIN_WIDTH: usize = 40;
/// Maximum width of a sentence's line; longer lines are hard to read.
const MAX_SENTENCE: usize = 100;

/// The terminal on which the screen is shown, and the command for the rest.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether sentences are folded into lines. In a pipe each sentence is one line.
    pub is_folded: bool,
    /// The command line that shows everything.
    pub full: &'a str,
}

/// The first screen of a comparison.
pub fn render(comparison: &Comparison, place: Place<'_>) -> Vec<Line> {
    let rows = rows::rows(comparison);
    let width = place.width.max(MIN_WIDTH);
    let notes = notes::notes(comparison, &rows);
    let (mut lines, left_out) = columns::lines(table(comparison, &rows), width);
    lines.push(Line::new());
    let text_width = if place.is_folded { width.min(MAX_SENTENCE) } else { usize::MAX };
    let paragraph = |lead: &str, emphasis: Emphasis, rest: &str| {
        folded(Span::new(lead, emphasis), rest, text_width, if emphasis == Emphasis::Doubtful { 2 } else { 0 })
    };
    let headline = sentence::headline(comparison);
    let (claim, rest) = sentence::claim_and_rest(&headline);
    lines.extend(paragraph(claim, Emphasis::Strong, rest));
    for part in explained::sentences(comparison).into_iter().chain(shares::sentences(comparison)) {
        lines.extend(paragraph("", Emphasis::None, &part));
    }
    for note in notes.iter().filter_map(|note| note.brief.as_ref()) {
        let (lead, rest) = note.split_at(note.find(": ").map_or(0, |at| at + 1));
        lines.extend(paragraph(lead, Emphasis::Doubtful, rest));
    }
    if let Some(rest) = advice::short(comparison).strip_prefix("advice:") {
        lines.extend(paragraph("advice:", Emphasis::Strong, rest));
    }
    lines.extend(paragraph("", Emphasis::None, &rest_of(&rows, &notes, &left_out, place.full)));
    lines
}

/// `more (2 columns, 5 notes, why 2 policies are unsupported): pagelab show 3 --full`: what the screen leaves out.
fn rest_of(rows: &[Row<'_>], notes: &[Note], left_out: &[String], full: &str) -> String {
    let unsupported: Vec<String> = rows.iter().filter(|row| row.unsupported().is_some()).map(Row::label).collect();
    let others = notes.iter().map(Note::hidden).sum::<usize>() - unsupported.len();
    let why = match &unsupported[..] {
        [] => None,
        [one] => Some(format!("why {one} is unsupported")),
        several => Some(format!("why {} policies are unsupported", several.len())),
    };
    let notes = match others {
        0 => None,
        1 => Some("1 note".to_owned()),
        others => Some(format!("{others} notes")),
    };
    let columns = match left_out {
        [] => None,
        [one] => Some(format!("column {one}")),
        several => Some(format!("{} columns", several.len())),
    };
    let parts: Vec<String> = columns.into_iter().chain(notes).chain(why).collect();
    match &parts[..] {
        [] => format!("all figures: {full}"),
        parts => format!("more ({}): {full}", parts.join(", ")),
    }
}

/// A table with one line per row, and the titles of the columns that were left out. A heading is a title and a number: if the terminal
/// is too narrow, the columns with the highest number are left out first; those with 0 always stay. The first two columns are text, the
/// others figures.
pub fn table_of<const N: usize>(
    headings: [(&str, u8); N],
    rows: &[[String; N]],
    width: usize,
) -> (String, Vec<String>) {
    let column = |(at, (title, dispensable)): (usize, (&str, u8))| Column {
        title: title.to_owned(),
        is_right_aligned: at > 1,
        dispensable,
        cells: rows.iter().map(|row| Span::plain(printable(&row[at]))).collect(),
    };
    let columns = headings.into_iter().enumerate().map(column).collect();
    let (lines, left_out) = columns::lines(columns, width.max(MIN_WIDTH));
    (without_emphasis(&lines), left_out)
}

fn table(comparison: &Comparison, rows: &[Row<'_>]) -> Vec<Column> {
    let primary = figure::metric(&comparison.design.metrics, rows::primary(comparison));
    let change = |row: &Row<'_>| row.effect(&primary.name).map(Change::of);
    let typical = |row: &Row<'_>, name: &str| {
        let unit = figure::metric(&comparison.design.metrics, name).unit;
        row.typical(name).map(|value| figure::short(value, unit))
    };
    let interval = format!("{} interval", figure::confidence(comparison.design.confidence));
    let column = |title: &str, dispensable: u8, cell: &dyn Fn(&Row<'_>) -> Option<Span>| Column {
        title: title.to_owned(),
        is_right_aligned: ![POLICY, PAGES, OUTCOME].contains(&title),
        dispensable,
        cells: rows.iter().map(|row| cell(row).unwrap_or_default()).collect(),
    };
    let printed = printed(&comparison.design, &primary);
    // The first metric that the user named stays longest, then the proof (pages), then the user's other metrics; their intervals are the
    // first to be left out. Without such metrics the interval stays longer than the proof, which has notes where it is in doubt.
    let last = 3 + printed.len() as u8;
    let (interval_dispensable, pages_dispensable) = if printed.is_empty() { (2, 3) } else { (last, 3) };
    let own = printed.iter().zip([2].into_iter().chain(4..)).flat_map(|(metric, dispensable)| {
        let with_change = |row: &Row<'_>| {
            let change = row.effect(&metric.name).map(|effect| format!(" {}", Change::of(effect).estimate()));
            Some(Span::plain(typical(row, &metric.name)? + &change.unwrap_or_default()))
        };
        let range = |row: &Row<'_>| Some(Span::plain(Change::of(row.effect(&metric.name)?).range()?));
        [
            column(&metric.name, dispensable, &with_change),
            column(&format!("{} interval", metric.name), last + 3, &range),
        ]
    });
    let (own, mut columns): (Vec<Column>, _) = (
        own.collect(),
        vec![
            column(POLICY, 0, &|row| Some(label(row))),
            column(&rows::title(comparison, &primary.name), 1, &|row| typical(row, &primary.name).map(Span::plain)),
            column("change", 0, &|row| Some(Span::plain(change(row)?.estimate()))),
            column(&interval, interval_dispensable, &|row| Some(Span::plain(change(row)?.range()?))),
            column("memory", last + 1, &|row| typical(row, names::PEAK_RESIDENT_BYTES).map(Span::plain)),
            column(PAGES, pages_dispensable, &|row| Some(verdict(row))),
            column(OUTCOME, 0, &|row| Some(outcome(row))),
        ],
    );
    columns.splice(FIRST_PRINTED..FIRST_PRINTED, own);
    columns
}

/// The metrics that the program prints, without the primary metric if the program prints that too (`--metric`).
fn printed(design: &Design, primary: &Metric) -> Vec<Metric> {
    let general = Metric::of_every_trial();
    let is_printed = |metric: &&Metric| {
        metric.name != primary.name
            && metric.unit == Unit::Custom
            && general.iter().all(|known| known.name != metric.name)
    };
    design.metrics.iter().filter(is_printed).cloned().collect()
}

/// Position of the first [`printed`] column: after the change of the primary metric.
const FIRST_PRINTED: usize = 4;

const POLICY: &str = "policy";
const PAGES: &str = "pages";
const OUTCOME: &str = "outcome";

fn label(row: &Row<'_>) -> Span {
    let is_best = matches!(row.analysis.map(|analysis| &analysis.outcome), Some(Outcome::Better { best: true }));
    Span::new(row.label(), if is_best { Emphasis::Strong } else { Emphasis::None })
}

fn verdict(row: &Row<'_>) -> Span {
    let emphasis = match row.holding() {
        Some(Holding::NotHeld | Holding::Partly | Holding::Unknown) => Emphasis::Doubtful,
        _ => Emphasis::None,
    };
    Span::new(row.verdict(" "), emphasis)
}

/// The outcome in one or two words. A note explains an outcome that is unproven.
fn outcome(row: &Row<'_>) -> Span {
    let outcome = row.outcome();
    let word = outcome.split(": ").next().unwrap_or_default();
    let emphasis = match row.analysis.map(|analysis| &analysis.outcome) {
        Some(Outcome::Better { .. }) => Emphasis::Good,
        Some(Outcome::Worse | Outcome::WrongAnswer { .. } | Outcome::TooSlow { .. }) => Emphasis::Bad,
        Some(Outcome::WithinTracerCost) => Emphasis::Doubtful,
        Some(Outcome::Undecided { .. } | Outcome::Unsupported | Outcome::NotMeasured) | None => Emphasis::Faint,
        _ => Emphasis::None,
    };
    Span::new(printable(word), emphasis)
}

#[cfg(test)]
mod tests;
