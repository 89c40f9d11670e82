//! Everything about a comparison as a table for the terminal (`show --full`). The first screen is [`crate::screen`].

pub(crate) mod notes;

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
use policy::{Granularity, Policy};
use study::comparison::Comparison;
use study::metric::{Metric, names};
use study::trial::Arm;

use crate::figure::{self, Change};
use crate::rows::{self, Row};
use crate::text::{fold, printable};
use notes::{COST, notes};

/// Minimum layout width; a narrower terminal wraps the lines itself.
const MIN_WIDTH: usize = 40;
/// Minimum width of a table with columns; on a narrower terminal each policy is a paragraph.
const MIN_TABLE: usize = 80;
/// Maximum width of a line; longer lines are hard to read.
const MAX_WIDTH: usize = 200;

/// Maximum bytes of a cell's text, because laying out a word in a column takes time quadratic in its length. A row with
/// a longer text becomes a paragraph.
pub(crate) const MAX_CELL: usize = 4096;

/// The only rule is the one below the header.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .header_lines(ContentLineStyle::none())
    .content_lines(ContentLineStyle::none());

/// The table in lines of at most `width` columns (40 to 200), one row per policy. If `width` is below 80 or no table fits, each policy is a
/// paragraph. It is followed by the reasons of unsupported rows, the causes of policies that were not held, and the warnings with their
/// remedies.
///
/// A row has one line each for the primary metric, the requested metrics (`--metric`, `--repeat-inside`), wall time, CPU time, user time
/// and system time, and one for the effect of the tracer's stops on the primary metric. Only a word longer than a line, such as a path in a
/// note, exceeds the width.
pub fn render(comparison: &Comparison, width: usize) -> String {
    let width = width.clamp(MIN_WIDTH, MAX_WIDTH);
    let rows = rows::rows(comparison);
    let is_observed = |metric: &Metric| rows.iter().any(|row| row.typical(&metric.name).is_some());
    let metrics: Vec<Metric> = detailed_metrics(comparison).into_iter().filter(is_observed).collect();
    let is_too_long = |row: &Row<'_>| row.label().len().max(row.outcome().len()) > MAX_CELL;
    let table = if width < MIN_TABLE || rows.iter().any(is_too_long) {
        None
    } else {
        table(comparison, &rows, width, &metrics)
    };
    let legend = legend(comparison, &rows, &metrics);
    let mut text = table.unwrap_or_else(|| paragraphs(comparison, &rows, width, metrics));
    let notes = notes(comparison, &rows);
    text.push_str(if notes.is_empty() && legend.is_empty() { "" } else { "\n" });
    for line in legend.iter().chain(notes.iter().flat_map(|note| &note.full)) {
        text.push_str(&fold(line, width, 4));
        text.push('\n');
    }
    text
}

/// What the table does not say about its own columns and rows.
fn legend(comparison: &Comparison, rows: &[Row<'_>], metrics: &[Metric]) -> Vec<String> {
    let has_change = rows.iter().any(|row| metrics.iter().any(|metric| row.effect(&metric.name).is_some()));
    let typical =
        has_change.then(|| "typical: the baseline's median; in other rows, that median times the change".to_owned());
    let has_trials = |row: &&Row<'_>| metrics.iter().any(|metric| row.typical(&metric.name).is_some());
    let has_any = |name: &str| rows.iter().filter(has_trials).any(|row| row.typical(name).is_some());
    let is_untraced = rows.iter().any(|row| has_trials(&row)) && !has_any(names::TRACER_S);
    let memory = if has_any(names::PEAK_RESIDENT_BYTES) {
        "the kernel's peak of resident memory, of the largest process (ru_maxrss)"
    } else {
        "not known: pages of a pool may count, or pagelab itself had more"
    };
    let memory =
        is_untraced.then(|| format!("these runs had no tracer; page tables: not known without one; memory: {memory}"));
    let mut sizes: Vec<String> = comparison.design.arms.iter().filter_map(mthp_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let others = (sizes.len() == 1).then(|| {
        format!("{} is one mTHP size of several: pagelab list policies names them, and -p compares them", sizes[0])
    });
    typical.into_iter().chain(memory).chain(others).collect()
}

/// `mthp-64k`, if the arm asks for an mTHP size.
fn mthp_size(arm: &Arm) -> Option<String> {
    let is_mthp = matches!(arm.policy.granularity, Granularity::Mthp(_));
    is_mthp.then(|| Policy::plain(arm.policy.granularity).to_string())
}

/// The headline metrics, followed by user time and system time.
fn detailed_metrics(comparison: &Comparison) -> Vec<Metric> {
    let mut metrics = rows::headline_metrics(comparison);
    for name in [names::USER_S, names::SYSTEM_S] {
        if metrics.iter().all(|metric| metric.name != name) {
            metrics.push(figure::metric(&comparison.design.metrics, name));
        }
    }
    metrics
}

/// The widest layout that fits, as text; `None` if none fits.
fn table(comparison: &Comparison, rows: &[Row<'_>], width: usize, metrics: &[Metric]) -> Option<String> {
    let layouts = [true, false].map(|wide| Layout { wide, headline: metrics.to_vec() }.table(comparison, rows));
    let fits = |table: &Table| table.lines().all(|line| line.trim_end().chars().count() <= width);
    layouts.into_iter().find(fits).map(|table| table.trim_fmt() + "\n")
}

/// The content of the table without columns, one paragraph per policy: the outcome, a line per metric, and the
/// remaining cells.
fn paragraphs(comparison: &Comparison, rows: &[Row<'_>], width: usize, headline: Vec<Metric>) -> String {
    let layout = Layout { wide: false, headline };
    let interval = format!("{} interval", figure::confidence(comparison.design.confidence));
    let mut text = fold(&format!("typical value; change in % and its {interval}"), width, 0) + "\n";
    let lines: Vec<Vec<[String; 4]>> = rows.iter().map(|row| layout.metric_lines(row)).collect();
    let columns: [usize; 4] =
        std::array::from_fn(|at| lines.iter().flatten().map(|line| line[at].chars().count()).max().unwrap_or(0));
    for (row, lines) in rows.iter().zip(&lines) {
        let needed = row.what_would_settle_it().map(|what| format!(", {what}")).unwrap_or_default();
        text.push_str(&format!("\n{}\n", fold(&format!("{}: {}{needed}", row.label(), row.outcome()), width, 4)));
        for [name, typical, change, range] in lines {
            let [w0, w1, w2, w3] = columns;
            let line = format!("  {name:w0$} {typical:>w1$} {change:>w2$} {range:>w3$}");
            if line.trim_end().chars().count() <= width {
                text.push_str(line.trim_end())
            } else {
                text.push_str(&format!("  {name:w0$} {typical:>w1$}\n    {change:>w2$} {range:>w3$}"))
            }
            text.push('\n');
        }
        text.push_str(&layout.rest(row).map_or(String::new(), |rest| fold(&format!("  {rest}"), width, 2) + "\n"));
    }
    text
}

struct Layout {
    /// Whether page tables and peak memory each have a column, and no cell is folded.
    wide: bool,
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
            &["minor faults", "page tables", "peak memory"]
        } else {
            &["minor\nfaults", "peak,\npage\ntables"]
        };
        let left = ["policy", "", "typical", change].map(String::from);
        let mut header: Vec<String> = left.into_iter().chain([interval, "pages".to_string()]).collect();
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
        let typical = |metric: &Metric| row.typical(&metric.name).map(|value| figure::short(value, metric.unit));
        let change = |metric: &Metric| row.effect(&metric.name).map(Change::of);
        let short = |name: &str| {
            let unit = figure::metric(&[], name).unit;
            row.typical(name).map(|value| figure::short(value, unit)).unwrap_or_default()
        };
        let shown = |metric: &Metric| typical(metric).map(|_| line_name(metric)).unwrap_or_default();
        let mut cells = vec![
            Cell::new(self.policy(row)),
            Cell::new(lines(&shown, &|_| COST.to_string())),
            Cell::new(lines(&|metric| typical(metric).unwrap_or_default(), &|_| String::new())),
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
        // Broken into two lines, this outcome is hardly wider than others.
        let outcome = outcome.replace(": the ", ": the\n");
        cells.push(Cell::new(format!("{outcome}{needed}")));
        cells
    }

    /// For each observed metric, and for the tracer's cost: name, typical value, change and interval.
    fn metric_lines(&self, row: &Row<'_>) -> Vec<[String; 4]> {
        let line = |metric: &Metric| {
            let typical = figure::short(row.typical(&metric.name)?, metric.unit);
            let change = row.effect(&metric.name).map(Change::of);
            let estimate = change.map(|change| self.estimate(change)).unwrap_or_default();
            let range = change.and_then(|change| self.range(change)).unwrap_or_default();
            Some([line_name(metric), typical, estimate, range])
        };
        let cost =
            self.headline.first().and_then(|primary| row.cost(&primary.name)).map(|cost| {
                [COST.to_string(), String::new(), self.estimate(cost), self.range(cost).unwrap_or_default()]
            });
        self.headline.iter().filter_map(line).chain(cost).collect()
    }

    /// Verdict, faults and memory, as one clause.
    fn rest(&self, row: &Row<'_>) -> Option<String> {
        let figure = |name: &str, title: &str| {
            let unit = figure::metric(&[], name).unit;
            row.typical(name).map(|value| format!("{title} {}", figure::short(value, unit)))
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

    /// The label of an arm. If space is short, the parts of a long label are placed below each other.
    fn policy(&self, row: &Row<'_>) -> String {
        if self.wide { row.label() } else { row.label().replace('+', "\n+").replace(" (", "\n(") }
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

fn line_name(metric: &Metric) -> String {
    match metric.name.as_str() {
        names::WALL_S => "wall".to_string(),
        names::CPU_S => "cpu".to_string(),
        names::USER_S => "user".to_string(),
        names::SYSTEM_S => "system".to_string(),
        other => printable(other),
    }
}

#[cfg(test)]
mod tests;
