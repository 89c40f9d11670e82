//! The comparison as a table for the terminal.

mod notes;

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
use study::comparison::Comparison;
use study::metric::{Metric, names};

use crate::figure::{self, Change};
use crate::rows::{self, Row};
use crate::text::{fold, printable};
use notes::{COST, notes};

/// Minimum layout width; a narrower terminal wraps the lines itself.
const MIN_WIDTH: usize = 40;
/// Minimum width of the table; on a narrower terminal each policy is a paragraph.
const MIN_TABLE: usize = 80;
/// Maximum width of a line; longer ones are hard to read.
const MAX_WIDTH: usize = 200;

/// Maximum bytes of a cell's text: laying out a word in a column takes time quadratic in its length. A row with a
/// longer text, which no terminal has room for, becomes a paragraph.
pub(crate) const MAX_CELL: usize = 4096;

/// Only a rule below the header.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .header_lines(ContentLineStyle::none())
    .content_lines(ContentLineStyle::none());

/// The table, one row per policy, in lines of at most `width` columns (40 to 200; below 80 one paragraph per policy).
/// It is followed by the reasons of unsupported rows, the causes of policies that were not held, and the warnings with
/// their remedies.
///
/// A row has one line each for the primary metric, the requested metrics (`--metric`, `--repeat-inside`), wall time and
/// CPU time, and one for the effect of the tracer's stops on the primary metric. Only a single word of a note that is
/// longer than a line, such as a path, exceeds the width.
pub fn render(comparison: &Comparison, width: usize) -> String {
    let width = width.clamp(MIN_WIDTH, MAX_WIDTH);
    let rows = rows::rows(comparison);
    let is_too_long = |row: &Row<'_>| row.label().len().max(row.outcome().len()) > MAX_CELL;
    let mut text = if width < MIN_TABLE || rows.iter().any(is_too_long) {
        paragraphs(comparison, &rows, width)
    } else {
        table(comparison, &rows, width)
    };
    for note in notes(comparison, &rows) {
        text.push_str(&fold(&note, width, 4));
        text.push('\n');
    }
    text
}

/// The widest layout that fits.
fn table(comparison: &Comparison, rows: &[Row<'_>], width: usize) -> String {
    let headline = rows::headline_metrics(comparison);
    let [wide, narrow, mut narrowest] = [(true, false), (false, false), (false, true)]
        .map(|(wide, short_names)| Layout { wide, short_names, headline: headline.clone() }.table(comparison, rows));
    narrowest.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
    let fits = |table: &Table| table.lines().all(|line| line.trim_end().chars().count() <= width);
    let table = [wide, narrow].into_iter().find(fits).unwrap_or(narrowest);
    table.trim_fmt() + "\n"
}

/// The content of the table, one paragraph per policy: the outcome, a line per metric, the rest.
fn paragraphs(comparison: &Comparison, rows: &[Row<'_>], width: usize) -> String {
    let layout = Layout { wide: false, short_names: true, headline: rows::headline_metrics(comparison) };
    let interval = format!("{} interval", figure::confidence(comparison.design.confidence));
    let mut text = fold(&format!("median; change in % and its {interval}"), width, 0) + "\n";
    let lines: Vec<Vec<[String; 4]>> = rows.iter().map(|row| layout.metric_lines(row)).collect();
    let columns: [usize; 4] =
        std::array::from_fn(|at| lines.iter().flatten().map(|line| line[at].chars().count()).max().unwrap_or(0));
    for (row, lines) in rows.iter().zip(&lines) {
        let needed = row.what_would_settle_it().map(|what| format!(", {what}")).unwrap_or_default();
        text.push_str(&format!("\n{}\n", fold(&format!("{}: {}{needed}", row.label(), row.outcome()), width, 4)));
        for [name, median, change, range] in lines {
            let [w0, w1, w2, w3] = columns;
            let line = format!("  {name:w0$} {median:>w1$} {change:>w2$} {range:>w3$}");
            if line.trim_end().chars().count() <= width {
                text.push_str(line.trim_end())
            } else {
                text.push_str(&format!("  {name:w0$} {median:>w1$}\n    {change:>w2$} {range:>w3$}"))
            }
            text.push('\n');
        }
        text.push_str(&layout.rest(row).map_or(String::new(), |rest| fold(&format!("  {rest}"), width, 2) + "\n"));
    }
    text
}

struct Layout {
    /// Whether page tables and peak memory have a column each, and nothing is folded.
    wide: bool,
    /// Whether names of metrics are shortened: a folded name would move the names below it away from the lines of their
    /// figures.
    short_names: bool,
    /// The metrics with a line in each row.
    headline: Vec<Metric>,
}

impl Layout {
    fn table(&self, comparison: &Comparison, rows: &[Row<'_>]) -> Table {
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.header(comparison).map(Cell::new));
        table.add_rows(rows.iter().map(|row| self.cells(row)));
        self.arrange(&mut table);
        table
    }

    fn header(&self, comparison: &Comparison) -> impl Iterator<Item = String> + use<> {
        let confidence = figure::confidence(comparison.design.confidence);
        let interval = if self.wide { format!("{confidence} interval") } else { format!("{confidence}\ninterval") };
        let change = if self.wide { "change" } else { "change\n%" };
        let memory: &[&str] = if self.wide {
            &["minor faults", "tables seen", "peak memory"]
        } else {
            &["minor\nfaults", "peak,\ntables\nseen"]
        };
        let left = ["policy", "", "median", change].map(String::from);
        let mut header: Vec<String> = left.into_iter().chain([interval, "verdict".to_string()]).collect();
        header.extend(memory.iter().map(|name| name.to_string()));
        header.push("outcome".to_string());
        header.into_iter()
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Cell> {
        let cost = self.headline.first().and_then(|primary| row.cost(&primary.name));
        let lines = |of: &dyn Fn(&Metric) -> String, of_cost: &dyn Fn(Change) -> String| {
            let lines = self.headline.iter().map(of).chain(cost.map(of_cost));
            lines.collect::<Vec<_>>().join("\n").trim_end().to_string()
        };
        let median = |metric: &Metric| row.median(&metric.name).map(|value| figure::short(value, metric.unit));
        let change = |metric: &Metric| row.effect(&metric.name).map(Change::of);
        let short = |name: &str| {
            let unit = figure::metric(&[], name).unit;
            row.median(name).map(|value| figure::short(value, unit)).unwrap_or_default()
        };
        let shown = |metric: &Metric| median(metric).map(|_| self.line_name(metric)).unwrap_or_default();
        let mut cells = vec![
            Cell::new(self.policy(row)),
            Cell::new(lines(&shown, &|_| COST.to_string())),
            Cell::new(lines(&|metric| median(metric).unwrap_or_default(), &|_| String::new())),
            Cell::new(lines(
                &|metric| change(metric).map(|change| self.estimate(change)).unwrap_or_default(),
                &|cost| self.estimate(cost),
            )),
            Cell::new(lines(
                &|metric| change(metric).and_then(|change| self.range(change)).unwrap_or_default(),
                &|cost| self.range(cost).unwrap_or_default(),
            )),
            Cell::new(row.verdict(if self.wide { " " } else { "\n" })),
            Cell::new(short(names::MINOR_FAULTS)),
        ];
        let (tables, peak) = (short(names::PAGE_TABLE_SEEN_BYTES), short(names::PEAK_RESIDENT_BYTES));
        if self.wide {
            cells.extend([Cell::new(tables), Cell::new(peak)]);
        } else {
            cells.push(Cell::new(format!("{peak}\n{tables}").trim_end()));
        }
        let needed = row.what_would_settle_it().map(|what| format!("\n{what}")).unwrap_or_default();
        let outcome = row.outcome();
        // On two lines it is hardly wider than other outcomes.
        let outcome = outcome.replace(": the ", ": the\n");
        cells.push(Cell::new(format!("{outcome}{needed}")));
        cells
    }

    /// Name, median, change and interval of each observed metric.
    fn metric_lines(&self, row: &Row<'_>) -> Vec<[String; 4]> {
        let line = |metric: &Metric| {
            let median = figure::short(row.median(&metric.name)?, metric.unit);
            let change = row.effect(&metric.name).map(Change::of);
            let estimate = change.map(|change| self.estimate(change)).unwrap_or_default();
            let range = change.and_then(|change| self.range(change)).unwrap_or_default();
            Some([self.line_name(metric), median, estimate, range])
        };
        self.headline.iter().filter_map(line).collect()
    }

    /// Verdict, faults and memory, as one clause.
    fn rest(&self, row: &Row<'_>) -> Option<String> {
        let figure = |name: &str, title: &str| {
            let unit = figure::metric(&[], name).unit;
            row.median(name).map(|value| format!("{title} {}", figure::short(value, unit)))
        };
        let verdict = Some(row.verdict(" ")).filter(|verdict| !verdict.is_empty() && verdict != "-");
        let figures = [
            figure(names::MINOR_FAULTS, "minor faults"),
            figure(names::PEAK_RESIDENT_BYTES, "peak"),
            figure(names::PAGE_TABLE_SEEN_BYTES, "tables"),
        ];
        let parts: Vec<String> = std::iter::once(verdict).chain(figures).flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// If space is short, the parts of a long label are placed below each other.
    fn policy(&self, row: &Row<'_>) -> String {
        if self.wide { row.label() } else { row.label().replace('+', "\n+").replace(" (", "\n(") }
    }

    fn line_name(&self, metric: &Metric) -> String {
        match metric.name.as_str() {
            names::WALL_S => "wall".to_string(),
            names::CPU_S => "cpu".to_string(),
            other if self.short_names => cut(&printable(other)),
            other => printable(other),
        }
    }

    fn estimate(&self, change: Change) -> String {
        let estimate = change.estimate();
        if self.wide { estimate } else { estimate.trim_end_matches(" %").to_string() }
    }

    fn range(&self, change: Change) -> Option<String> {
        let range = change.range()?;
        Some(if self.wide { range } else { range.replace(" to ", "..") })
    }

    fn arrange(&self, table: &mut Table) {
        let last = table.column_count() - 1;
        // The style's junctions add one more column.
        let gap = if self.wide { 1 } else { 0 };
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if at == last { 0 } else { gap }));
            let words = [0, 1, 5, last].contains(&at);
            if !words {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
}

/// Shortens a name to eight characters. Names of one family often differ only at the end, so both ends are kept.
fn cut(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len() {
        0..=8 => name.to_string(),
        all => letters[..3].iter().chain(&['…']).chain(&letters[all - 4..]).collect(),
    }
}

#[cfg(test)]
mod tests;
