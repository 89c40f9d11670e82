//! The comparison as a table for the terminal.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
use study::cause::Cause;
use study::comparison::{Comparison, Khugepaged};
use study::metric::{Metric, names};
use study::stats::Outcome;
use study::verdict::Holding;

use crate::figure::{self, Change};
use crate::rows::{self, Row, cause_clause};
use crate::text::{enumerate, fold, printable, times};

/// The least width that is laid out for; a narrower terminal wraps the lines itself.
const LEAST_WIDTH: usize = 40;
/// The least width of the table; on a narrower terminal each policy is a paragraph.
const LEAST_TABLE: usize = 80;
/// The greatest width of a line; longer ones are hard to read.
const GREATEST_WIDTH: usize = 200;

/// Bytes of a cause are means.
const A_RUN: &str = " a run";

/// The name of a row's line that stands for the tracer's cost.
const COST: &str = "cost";

/// A rule below the header and nothing else.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .header_lines(ContentLineStyle::none())
    .content_lines(ContentLineStyle::none());

/// The table, one row a policy, in lines of at most `width` columns (40 to 200; below 80 a paragraph a policy); below it the reasons of
/// unsupported rows, the causes of policies that were not held, and the warnings, with their remedies.
///
/// A row has a line for each of the primary metric, the metrics that were asked for (`--metric`,
/// `--repeat-inside`), wall time and CPU time, and one for what the tracer's stops make of the primary metric. Only a single word of a note that is longer than a line, such
/// as a path, stands out.
pub fn render(comparison: &Comparison, width: usize) -> String {
    let width = width.clamp(LEAST_WIDTH, GREATEST_WIDTH);
    let rows = rows::rows(comparison);
    let mut text =
        if width < LEAST_TABLE { paragraphs(comparison, &rows, width) } else { table(comparison, &rows, width) };
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

/// What the table has, a paragraph a policy: the outcome, a line for each metric, the rest.
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
            match line.trim_end().chars().count() <= width {
                true => text.push_str(line.trim_end()),
                false => text.push_str(&format!("  {name:w0$} {median:>w1$}\n    {change:>w2$} {range:>w3$}")),
            }
            text.push('\n');
        }
        text.push_str(&layout.rest(row).map_or(String::new(), |rest| fold(&format!("  {rest}"), width, 2) + "\n"));
    }
    text
}

struct Layout {
    /// Whether page tables and peak memory have a column each, and nothing is broken.
    wide: bool,
    /// Whether the names of metrics are cut: a name that is folded would push the ones below it off the
    /// lines of their figures.
    short_names: bool,
    /// The metrics that have a line in each row.
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
        // In two lines it is hardly longer than other words.
        let outcome = outcome.replace(": the ", ": the\n");
        cells.push(Cell::new(format!("{outcome}{needed}")));
        cells
    }

    /// Name, median, change and interval of each metric that was observed.
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

    /// Verdict, faults and memory, in one clause.
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

    /// Where space is short, the parts of a long label stand below each other.
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

/// A name in at most eight characters. Names of one family often differ at their ends only: both stay.
fn cut(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len() {
        0..=8 => name.to_string(),
        all => letters[..3].iter().chain(&['…']).chain(&letters[all - 4..]).collect(),
    }
}

/// What a reader must know beside the figures, one line each; an empty one sets them off.
fn notes(comparison: &Comparison, rows: &[Row<'_>]) -> Vec<String> {
    let mut notes: Vec<String> = cost_note(comparison, rows).into_iter().collect();
    notes.extend(rows.iter().flat_map(|row| row_notes(row, &comparison.design.primary)));
    notes.extend(of_khugepaged(comparison, rows));
    for (warning, remedy) in rows::warnings(comparison) {
        let sentence = printable(&warning.describe(&comparison.design.arms));
        let remedy = remedy.map(|remedy| format!("; {}", printable(&remedy))).unwrap_or_default();
        notes.push(format!("warning: {sentence}{remedy}"));
    }
    if !notes.is_empty() {
        notes.insert(0, String::new());
    }
    notes
}

/// How khugepaged was held, or how it can be where it was at work.
fn of_khugepaged(comparison: &Comparison, rows: &[Row<'_>]) -> Option<String> {
    let was_at_work = rows.iter().any(|row| row.collapses().is_some_and(|collapses| collapses.trials > 0));
    match comparison.design.khugepaged {
        Khugepaged::Off => Some(format!("khugepaged was {}", figure::khugepaged(&comparison.design))),
        Khugepaged::AsIs if was_at_work => {
            Some("khugepaged wakes up in some trials and not in others: --khugepaged off holds it still".to_owned())
        }
        Khugepaged::AsIs => None,
    }
}

/// What the lines of the tracer's cost are.
fn cost_note(comparison: &Comparison, rows: &[Row<'_>]) -> Option<String> {
    let primary = &comparison.design.primary;
    let bare = comparison.analysis.as_ref()?.arms.get(comparison.design.bare()?)?.medians.get(primary)?;
    let baseline = rows.iter().find(|row| row.index == comparison.design.baseline)?;
    baseline.cost(primary)?;
    let metric = figure::metric(&comparison.design.metrics, primary);
    let others = rows.iter().filter(|row| row.index != baseline.index && row.unsupported().is_none());
    let (own, same): (Vec<&Row<'_>>, Vec<&Row<'_>>) = others.partition(|row| row.cost(primary).is_some());
    let names = |rows: &[&Row<'_>]| enumerate(&rows.iter().map(|row| row.label()).collect::<Vec<_>>());
    let own = match own.is_empty() {
        true => String::new(),
        false => format!("; of {} against {}, by runs with the same stops (sham)", names(&own), baseline.label()),
    };
    let same = match &same[..] {
        [] => String::new(),
        [one] => format!("; {} stops about as often as {}", one.label(), baseline.label()),
        same => format!("; {} stop about as often as {}", names(same), baseline.label()),
    };
    Some(format!(
        "{COST}: what the tracer's stops alone make of {}: of {} against a run without a tracer (bare, {}){own}{same}. No \
         change within it is claimed",
        figure::title(primary),
        baseline.label(),
        figure::short(*bare, metric.unit)
    ))
}

fn row_notes(row: &Row<'_>, primary: &str) -> Vec<String> {
    let label = row.label();
    if let Some(unsupported) = row.unsupported() {
        return vec![format!("{label} is unsupported: {}", printable(&unsupported.to_string()))];
    }
    let mut notes = Vec::new();
    if let Some(Outcome::WrongAnswer { message }) = row.analysis.map(|analysis| &analysis.outcome) {
        notes.push(format!("{label} gave a wrong answer: {}", printable(message)));
    }
    if let Some(message) = &row.too_slow {
        notes.push(format!("{label} {message}; it was not run again, because it would be again"));
    }
    if row.analysis.is_some_and(|analysis| analysis.outcome == Outcome::WithinTracerCost) {
        let cost = row.cost(primary).map(|cost| format!(" ({})", cost.estimate())).unwrap_or_default();
        notes.push(format!("{label}: {}{cost} could have made or hidden its change", row.outcome()));
    }
    let short = matches!(row.holding(), Some(Holding::NotHeld | Holding::Partly | Holding::Unknown));
    if short {
        let spread = row.spread().map(|spread| format!(" {spread}")).unwrap_or_default();
        notes.push(format!("{label} was not shown to be in force: {}{spread}", row.verdict(" ")));
    }
    for share in row.causes() {
        // Where the policy held, only what concerns the whole run is news.
        if matches!(share.cause, Cause::PeakUnseen | Cause::PeakUncertain) {
            let lead = if short { "  - ".to_string() } else { format!("{label}: ") };
            notes.push(format!("{lead}{}", peak_clause(row, &share.cause)));
        } else if short {
            notes.push(format!("  - {}", cause_clause(&share, A_RUN)));
        } else if share.bytes.is_none() || matches!(share.cause, Cause::ProcessUnseen { .. }) {
            notes.push(format!("{label}: {}", cause_clause(&share, A_RUN)));
        }
    }
    for answered in row.answered() {
        let call = printable(&answered.call);
        notes
            .push(format!("{label}: answered by the tracer, not the kernel: {call} ({} a run)", times(answered.times)));
    }
    notes.extend(row.collapses().and_then(|collapses| collapses.describe()).map(|what| format!("{label}: {what}")));
    notes
}

/// A cause that is about the peak, with how much of it was looked at.
fn peak_clause(row: &Row<'_>, cause: &Cause) -> String {
    let seen = row.peak_seen().map(|seen| format!(" ({seen} at the peak)")).unwrap_or_default();
    let remedy = cause.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    format!("{}{seen}{remedy}", cause.describe())
}

#[cfg(test)]
mod tests {
    use study::cause::CauseShare;
    use study::metric::Observation;
    use study::verdict::Peak;

    use super::*;
    use crate::sample;

    /// Columns of a line as a terminal counts them; the sample has no wide characters.
    fn columns(line: &str) -> usize {
        line.chars().count()
    }

    #[test]
    fn every_line_fits() {
        let comparison = sample::comparison();
        for width in LEAST_WIDTH..=GREATEST_WIDTH {
            for line in render(&comparison, width).lines() {
                let single_word = !line.trim().trim_start_matches("- ").contains(' ');
                assert!(columns(line) <= width || single_word, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn what_khugepaged_did_is_said_of_each_row_and_how_it_was_held_once() {
        let mut comparison = sample::comparison();
        assert!(!render(&comparison, 140).contains("khugepaged made"), "no trial knows");
        for record in &mut comparison.trials {
            let collapses = match (record.trial.arm, record.trial.block) {
                (3, 2) => 1.0,
                (3, 4 | 5) => 3.0,
                _ => 0.0,
            };
            record.observations.push(Observation::measured(names::HOST_COLLAPSES, collapses));
        }
        let text = render(&comparison, 140);
        assert!(
            text.contains("thp: khugepaged made 1 to 3 large pages in 3 of the 15 trials (a counter of the host"),
            "{text}"
        );
        assert_eq!(
            (text.matches("khugepaged made").count(), text.matches("--khugepaged off holds it still").count()),
            (1, 1),
            "{text}"
        );
        let document = crate::json::document(&comparison);
        let of_arm = |arm: usize, key: &str| document["arms"][arm]["khugepaged"][key].as_u64();
        let keys = ["of_trials", "trials", "least_collapses", "most_collapses"];
        assert_eq!(keys.map(|key| of_arm(3, key)), [Some(15), Some(3), Some(1), Some(3)]);
        assert_eq!(keys.map(|key| of_arm(0, key)), [Some(15), Some(0), Some(0), Some(0)]);
        assert_eq!(document["design"]["khugepaged"], "as_is");
        comparison.design.khugepaged = Khugepaged::Off;
        assert!(render(&comparison, 140).contains("khugepaged was held still (--khugepaged off)"));
        assert!(crate::html::report(&comparison).contains("khugepaged made 1 to 3 large pages in 3 of the 15 trials"));
    }

    #[test]
    fn figures_are_not_broken() {
        for width in [40, 60, 80, 100, 123, 140] {
            let text = render(&sample::comparison(), width);
            for figure in ["3.274 s", "-11.8", "1.29G", "130K", "2,141", "282k", "unsupported", "equivalent"] {
                assert!(text.contains(figure), "{width}: {figure} is not in\n{text}");
            }
        }
    }

    #[test]
    fn every_arm_of_the_sample_is_judged() {
        let text = render(&sample::comparison(), 140);
        let outcome = |label: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{label} "))).expect(label);
            line.rsplit("  ").next().unwrap().trim().to_string()
        };
        let labels = ["default", "hugetlb-1g", "thp+no-guards", "thp", "mthp-64k", "default (again)"];
        let outcomes = ["baseline", "unsupported", "not held", "best", "undecided", "equivalent"];
        assert_eq!(labels.map(outcome), outcomes);
        assert!(
            text.contains(
                "hugetlb-1g is unsupported: the pool of 1G pages is empty (0 of 2 wanted); as root: echo 2 >"
            )
        );
        assert!(text.contains("thp+no-guards was not shown to be in force: not held 4 %"));
        assert!(text.contains("thp: answered by the tracer, not the kernel: prctl(PR_SET_THP_DISABLE) (once a run)"));
        assert!(text.contains("warning: the baseline drifted"));
    }

    #[test]
    fn a_remedy_that_warnings_share_is_said_once() {
        let mut comparison = sample::comparison();
        let loaded = |arm| study::stats::Warning::TracerLoad { arm, ratio: 0.125 };
        comparison.analysis.as_mut().unwrap().warnings =
            vec![loaded(0), loaded(2), study::stats::Warning::BaselineNotHeld];
        let text = render(&comparison, 200).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches("take 12.5 % of the wall time").count(), 2, "{text}");
        assert_eq!(text.matches(&loaded(0).remedy()).count(), 1, "{text}");
        assert!(text.find(&loaded(0).remedy()) > text.rfind("take 12.5 %"), "behind the last: {text}");
        assert_eq!(text.matches("warning: ").count(), 3);
    }

    #[test]
    fn metrics_that_were_asked_for_have_their_change_and_interval() {
        let comparison = sample::with_own_metrics();
        let lines = |width: usize| {
            let text = render(&comparison, width);
            let of_arm = text.lines().skip_while(|line| !line.starts_with("mthp-64k ")).take(4);
            let lines: Vec<String> = of_arm.map(str::to_string).collect();
            assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {text}");
            lines
        };
        for (width, long) in [(160, "p99_latency_ms"), (100, "p99_latency_ms"), (80, "p99…y_ms")] {
            let lines = lines(width);
            for (line, name, figures) in [
                (&lines[0], "wall", ["3.206", "-1.3", "-3.0", "+0.9"]),
                (&lines[1], "rps", ["93586", "+1.3", "-0.9", "+3.1"]),
                (&lines[2], long, ["3.206", "-1.3", "-3.0", "+0.9"]),
                (&lines[3], "cpu", ["3.083", "-1.4", "-3.1", "+0.8"]),
            ] {
                for part in figures.iter().chain([&name]) {
                    assert!(line.contains(part), "{width}: no {part} in {line:?}");
                }
            }
        }
    }

    /// The tree of 90 subshells: what its stops made stands below the change, and the row claims nothing.
    #[test]
    fn the_tracers_cost_stands_below_the_change_and_is_no_claim() {
        let comparison = sample::with_controls();
        for width in [80, 100, 140] {
            let text = render(&comparison, width);
            assert!(text.lines().all(|line| columns(line) <= width), "{width}: {text}");
            let lines: Vec<&str> = text.lines().collect();
            // The first one is that of thp+no-guards where space is short.
            let thp = &lines[lines.iter().rposition(|line| line.starts_with("thp ")).unwrap()..];
            assert!(thp[0].contains("wall") && thp[0].contains("+30.1"), "{width}: {text}");
            assert!(thp[2].contains("cost") && thp[2].contains("+31.1"), "{width}: {text}");
            assert!(thp[0].contains("unproven:"), "{width}: {text}");
            let default: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("default ")).take(3).collect();
            assert!(default[2].contains("cost") && default[2].contains("+0.7"), "{width}: {text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("of default against a run without a tracer (bare, 3."), "{width}: {text}");
            assert!(words.contains("thp: unproven: the tracer's cost (+31.1"), "{width}: {text}");
            assert!(words.contains("of thp against default, by runs with the same stops (sham)"), "{width}: {text}");
            assert!(!text.lines().any(|line| line.starts_with("bare") || line.starts_with("sham")), "{width}: {text}");
        }
    }

    /// A mean beside a word that is not about the mean contradicts it.
    #[test]
    fn the_coverage_in_the_table_goes_with_its_word() {
        let mut comparison = sample::comparison();
        let thp = comparison.design.arms.iter().position(|arm| arm.label == "thp").unwrap();
        let mut of_thp: Vec<_> =
            comparison.trials.iter_mut().filter(|record| record.trial.arm == thp && record.trial.block > 0).collect();
        let tenth = of_thp.len() / 10;
        for record in &mut of_thp[..=tenth] {
            record.verdict.covered_bytes = record.verdict.concerned_bytes / 2;
            record.verdict.holding = Holding::Partly;
        }
        let text = render(&comparison, 140);
        let note = "thp was not shown to be in force: partly 50 % in the worst tenth of the runs, 91 % on average";
        assert!(text.contains(note), "{text}");
        assert!(text.lines().any(|line| line.starts_with("thp ") && line.contains("partly 50 %")), "{text}");
    }

    #[test]
    fn a_peak_that_was_not_looked_at_is_said_with_its_bytes() {
        let mut comparison = sample::comparison();
        let thp = comparison.design.arms.iter().position(|arm| arm.label == "thp").unwrap();
        for record in comparison.trials.iter_mut().filter(|record| record.trial.arm == thp) {
            let verdict = &mut record.verdict;
            (verdict.holding, verdict.causes) = (Holding::Unknown, Vec::new());
            verdict.causes.push(CauseShare { cause: Cause::PeakUnseen, bytes: Some(481 << 20) });
            verdict.peak = Some(Peak { seen_bytes: 12 << 20, least_bytes: 493 << 20, most_bytes: 520 << 20 });
        }
        let text = render(&comparison, 200).split_whitespace().collect::<Vec<_>>().join(" ");
        let note = "thp was not shown to be in force: unknown - most of the memory was gone before it could be looked at (12M of 493M \
                    at the peak); --prove-all looks at all memory before it goes";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn nothing_from_outside_reaches_the_terminal_raw() {
        for width in [40, 80, 200] {
            let text = render(&sample::hostile(), width);
            assert!(!text.chars().any(|c| c != '\n' && c.is_control()), "{text:?}");
            assert!(!text.contains('\u{202e}'));
        }
    }

    #[test]
    fn a_comparison_that_has_hardly_begun_has_a_table() {
        let text = render(&sample::empty(), 100);
        assert!(text.contains("not measured") && text.contains("unsupported"), "{text}");
    }
}
