//! The report as a mail: plain text in 72 columns, as customary on kernel mailing lists. One row per arm, in per cent
//! against the baseline: real, kernel and user time, each followed by its interval.

use policy::size::format_bytes;
use study::definition::Measure;
use study::matrix::{self, Cell, Matrix, Row, Standing, Total};
use study::metric::names;
use study::series::Filled;
use study::stats::Effect;

use super::answer::{answer, claimed};
use super::cells::word;
use super::cells::{of_found, place, totals_of};
use super::form::{heading_of, in_form, order};
use super::series::{held, provenance, sentences};
use super::{Report, Weighed, figures, further, grounds, rows_of};
use crate::figure;
use crate::text::{ascii, enumerate, fold};

/// Columns of a line.
const WIDTH: usize = 72;
/// Columns for a policy's name.
const NAME: usize = 20;
/// Columns for a change, including the space before it, for three and for four of them.
const CHANGES: [usize; 2] = [17, 13];

/// Columns for a size.
const SIZE: usize = 7;

/// Additional columns of the origin's form, and the widths of its names and changes.
const FORM_COLUMNS: usize = 3;
const FORM_NAME: usize = 19;
const FORM_CHANGE: usize = 17;
const FORM_WIDTH: usize = 9;

/// Explains intervals, and why one can exclude zero although the word is `undecided`.
const INTERVALS: &str = ", and below it the 95 % interval of each change by itself. Words such as undecided allow for the \
    number of arms and of workloads";

/// Renders the mail.
pub fn mail(report: &Report<'_>) -> String {
    let mut text = paragraph(&report.definition.question);
    std::iter::once(answer(report)).chain(claimed(report)).for_each(|sentence| text.push_str(&paragraph(&sentence)));
    if !report.missing.is_empty() {
        text.push_str(&paragraph(&format!("Missing: {}.", report.missing.join("; "))));
    }
    report.forms.iter().for_each(|form| text.push_str(&of_form(form)));
    report.policies().into_iter().chain(report.others()).for_each(|matrix| text.push_str(&of_matrix(matrix)));
    text.push_str(&report.counted.as_ref().map(of_counted).unwrap_or_default());
    report.series.iter().for_each(|one| text.push_str(&of_series(one)));
    text.push_str(&sources(report));
    text.push_str(&paragraph(&format!("Made by pagelab {}.", report.version)));
    ascii(text.trim_end()).into_owned() + "\n"
}

/// The origin's own form: a row per configuration, its change, and as many columns as fit.
fn of_form(form: &matrix::Filled) -> String {
    let columns: Vec<&(String, String)> = form.columns.iter().take(FORM_COLUMNS).collect();
    let mut text = paragraph(&format!("As the origin has it, {}:", form.machine));
    let heads = std::iter::once(figure::title(&form.metric))
        .chain(columns.iter().map(|(name, heading)| heading_of(name, heading)));
    let heads: Vec<String> = heads.map(|name| cut(&name, FORM_WIDTH - 1)).collect();
    let in_line = |name: &str, change: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>FORM_WIDTH$}")).collect();
        named(name, FORM_NAME) + format!("{change:>FORM_CHANGE$}{cells}").trim_end() + "\n"
    };
    text.push_str(&in_line("", "change", &heads));
    for row in &form.rows {
        let change = match (&row.why_not, &row.effect) {
            (Some(_), _) => "none".to_owned(),
            (None, Some(effect)) => on_one_line(effect, FORM_CHANGE - 1),
            (None, None) => "0.0%".to_owned(),
        };
        let names = std::iter::once(&form.metric).chain(columns.iter().map(|(name, _)| name));
        let cells: Vec<String> = names.map(|name| in_form(row, name)).collect();
        text.push_str(&in_line(&row.name, &change, &cells));
    }
    text.push('\n');
    text + &paragraph(&order(form))
}

/// A paragraph per row, and a table of the totals, machine by machine.
fn of_matrix(matrix: &Matrix) -> String {
    let mut text = String::new();
    let baseline = &matrix.baseline;
    for ground in grounds(matrix) {
        let known = rows_of(matrix, ground).filter(has_figure);
        let (rows, alone): (Vec<&Row>, Vec<&Row>) = known.partition(|row| has_baseline(row));
        if !rows.is_empty() {
            let intervals = if rows.iter().any(|row| has_interval(row)) { INTERVALS } else { "" };
            let what = format!("{}: per cent against {baseline}{intervals}.", place(ground));
            text.push_str(&paragraph(&what));
        }
        rows.iter().for_each(|row| text.push_str(&workload(row)));
        if !alone.is_empty() {
            let names: Vec<String> = alone.iter().map(|row| row.workload.clone()).collect();
            let why = format!("{baseline} has no figure, so these cannot be compared with it");
            text.push_str(&paragraph(&format!("{}: {why}: {}.", place(ground), enumerate(&names))));
        }
        text.push_str(&together(&totals_of(matrix, ground), &matrix.baseline));
        text.push_str(&limits(&rows));
    }
    text
}

/// Distinct remarks on the rows of a machine, each with the rows to which it applies.
fn limits(rows: &[&Row]) -> String {
    let line = |(_, note, workloads): &(&str, &str, Vec<&str>)| {
        let of = if workloads.len() == rows.len() { "all workloads".to_owned() } else { workloads.join(", ") };
        fold(&crate::text::printable(&format!("* {of}: {note}")), WIDTH, 2) + "\n"
    };
    let lines: String = further::limits(rows.iter().copied()).iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("What limits these figures:\n{lines}\n") }
}

fn paragraph(text: &str) -> String {
    fold(&crate::text::printable(text), WIDTH, 0) + "\n\n"
}

fn has_figure(row: &&Row) -> bool {
    row.cells.iter().any(|cell| !matches!(cell.standing, Standing::None { .. }))
}

/// Whether the baseline of a row has a figure with which others can be compared.
fn has_baseline(row: &Row) -> bool {
    row.cells.iter().any(|cell| cell.standing == Standing::Baseline)
}

fn has_interval(row: &Row) -> bool {
    row.cells.iter().flat_map(|cell| cell.effects.values()).any(|effect| effect.low.is_some())
}

/// The metrics of a row that get a column, with their headings: the primary one first.
fn columns(row: &Row) -> Vec<(String, &str)> {
    let times = [(names::WALL_S, "real"), (names::SYSTEM_S, "kern"), (names::USER_S, "user")];
    let is_there =
        |name: &str| row.cells.iter().any(|cell| cell.effects.contains_key(name) || cell.medians.contains_key(name));
    let own =
        times.iter().all(|(name, _)| *name != row.metric).then(|| (figure::title(&row.metric), row.metric.as_str()));
    let times = times.into_iter().filter(|(name, _)| is_there(name)).map(|(name, title)| (title.to_owned(), name));
    own.into_iter().chain(times).collect()
}

fn workload(row: &Row) -> String {
    let columns = columns(row);
    let blocks = if row.blocks > 0 { format!(" ({} blocks)", row.blocks) } else { String::new() };
    let mut text = fold(&format!("{}{blocks}", row.workload), WIDTH, 2) + "\n";
    text.push_str(&changes(row, &columns, CHANGES[usize::from(columns.len() > 3)], word));
    for metrics in figures::own(row).chunks(3) {
        let columns: Vec<(String, &str)> =
            metrics.iter().map(|metric| (figure::title(metric), metric.as_str())).collect();
        text.push_str(&changes(row, &columns, CHANGES[0], |_| ""));
    }
    columns.iter().for_each(|(title, metric)| text.push_str(&zeros(row, title, metric)));
    text + "\n"
}

/// Why a column has cells without a change, if values of zero prevent one.
fn zeros(row: &Row, title: &str, metric: &str) -> String {
    let is_compared = |cell: &&Cell| !matches!(cell.standing, Standing::Baseline | Standing::None { .. });
    let lacks = |cell: &Cell| cell.medians.contains_key(metric) && !cell.effects.contains_key(metric);
    if row.cells.iter().filter(is_compared).any(lacks) {
        fold(&format!("{title}: none where a trial has 0, to which there is no ratio"), WIDTH, 2) + "\n"
    } else {
        String::new()
    }
}

/// Changes of an arm, followed by the conclusions and the intervals.
fn changes(row: &Row, columns: &[(String, &str)], width: usize, word: fn(&Standing) -> &'static str) -> String {
    let titles: Vec<&str> = columns.iter().map(|(title, _)| title.as_str()).collect();
    let mut text = heads(&titles, width);
    for cell in &row.cells {
        let of = |metric: &str| match &cell.standing {
            Standing::Baseline | Standing::None { .. } => None,
            _ => cell.effects.get(metric),
        };
        let estimates = columns.iter().map(|(_, metric)| match (&cell.standing, of(metric)) {
            (Standing::Baseline, _) => "0.0%".to_owned(),
            (_, Some(effect)) => estimate(effect),
            (_, None) => "none".to_owned(),
        });
        text.push_str(&line(&cell.policy, estimates, width));
        let word = match cell.standing {
            Standing::Baseline | Standing::None { .. } => "",
            _ => word(&cell.standing),
        };
        let ranges = columns.iter().map(|(_, metric)| of(metric).and_then(|effect| range(effect, width - 1)));
        text.push_str(&below(word, ranges.map(Option::unwrap_or_default), width));
    }
    text
}

/// Column headings, on several lines if one is too long.
fn heads(titles: &[&str], width: usize) -> String {
    let titles: Vec<Vec<String>> = titles.iter().map(|title| broken(title, width - 1)).collect();
    let lines = titles.iter().map(Vec::len).max().unwrap_or(0);
    let at = |number: usize| {
        let cell = move |title: &Vec<String>| (number + title.len()).checked_sub(lines).map(|at| title[at].clone());
        titles.iter().map(move |title| cell(title).unwrap_or_default())
    };
    (0..lines).map(|number| line("", at(number), width)).collect()
}

/// Splits a name into parts that fit, at its separators.
fn broken(name: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in name.split_inclusive(['_', ' ', '-']) {
        let last = parts.len() - 1;
        if parts[last].is_empty() || parts[last].len() + word.trim_end().len() <= width {
            parts[last].push_str(word)
        } else {
            parts.push(word.to_owned())
        }
    }
    parts.iter().map(|part| cut(part.trim_end(), width)).collect()
}

fn line(name: &str, cells: impl Iterator<Item = String>, width: usize) -> String {
    let cells = cells.map(|cell| format!("{cell:>width$}")).collect::<String>();
    (named(name, NAME) + &cells).trim_end().to_owned() + "\n"
}

/// A continuation of the line above; empty if there is no content.
fn below(word: &str, cells: impl Iterator<Item = String>, width: usize) -> String {
    let word = if word.is_empty() { String::new() } else { format!("  {word}") };
    let text = line(&word, cells, width);
    if text.trim().is_empty() { String::new() } else { text }
}

/// The first column of a line. A longer name gets a line of its own.
fn named(name: &str, width: usize) -> String {
    if name.chars().count() > width {
        format!("{}\n{:width$}", cut(name, WIDTH), "")
    } else {
        format!("{name:<width$}")
    }
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn per_cent(ratio: f64, digits: usize) -> String {
    format!("{:+.digits$}", (ratio - 1.0) * 100.0)
}

/// `-12.3%`
fn estimate(effect: &Effect) -> String {
    format!("{}%", per_cent(effect.ratio, 1))
}

/// `-13.4..-11.2`: the interval, without decimals if they do not fit.
fn range(effect: &Effect, width: usize) -> Option<String> {
    let (low, high) = effect.low.zip(effect.high)?;
    let of_digits = |digits: usize| format!("{}..{}", per_cent(low, digits), per_cent(high, digits));
    Some(of_digits(1)).filter(|text| text.len() <= width).or_else(|| Some(of_digits(0)))
}

/// `-12.3% -13.4..-11.2`
fn on_one_line(effect: &Effect, width: usize) -> String {
    let of_digits = |digits: usize| {
        let range = effect.low.zip(effect.high);
        let range = range.map(|(low, high)| format!(" {}..{}", per_cent(low, digits), per_cent(high, digits)));
        format!("{}%{}", per_cent(effect.ratio, digits), range.unwrap_or_default())
    };
    let whole = of_digits(1);
    if whole.len() <= width { whole } else { of_digits(0) }
}

fn together(totals: &[&Total], baseline: &str) -> String {
    let others: Vec<&&Total> = totals.iter().filter(|total| total.policy != baseline && total.mean.is_some()).collect();
    if others.is_empty() {
        return String::new();
    }
    let mut text = "all workloads together, as cost\n".to_owned();
    let width = CHANGES[0];
    text.push_str(&heads(&["geomean", "beats all", "least (chance)"], width));
    for total in others {
        let effect = total.mean.map(|mean| mean.effect());
        let mean = effect.as_ref().map(estimate).unwrap_or_default();
        let wins = &total.wins;
        let led = format!("{}/{} ({:.1})", wins.led, wins.races, wins.led_by_chance);
        let cells = [mean, format!("{}/{}", wins.won, wins.races), led];
        text.push_str(&line(&total.policy, cells.into_iter(), width));
        let range = effect.as_ref().and_then(|effect| range(effect, width - 1));
        text.push_str(&below("", range.into_iter(), width));
    }
    text + "\n"
}

/// The counted work in the origin's form: a table per phase and variant, and the basis of each cost.
fn of_counted(weighed: &Weighed<'_>) -> String {
    if weighed.table.rows.is_empty() {
        return String::new();
    }
    let (counted, table) = (weighed.counted, &weighed.table);
    let bytes = format_bytes(counted.bytes);
    let (first, others) = counted.variants.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let mut text = paragraph(&format!(
        "{} of {bytes}, modelled: per cent of the time of {first} that is saved. Counts are exact; ranges hold for every \
         choice of costs.",
        counted.what
    ));
    let width = CHANGES[0];
    for (phase, variant) in table.phases().into_iter().flat_map(|phase| others.iter().map(move |one| (phase, one))) {
        text.push_str(&format!("{}\n", cut(&format!("{phase}, {variant}"), WIDTH)));
        text.push_str(&heads(&table.backings(), width));
        for (name, cells) in weighed.lines(phase, variant) {
            text.push_str(&line(&name, cells.into_iter(), width));
        }
        text.push('\n');
    }
    let costs = super::counted::told_costs(weighed).join("; ");
    text + &paragraph(&format!("What each event costs: {costs}.")) + &rounds(weighed)
}

/// A series of sizes: a line per size, a column per layout and host, as many as fit.
fn of_series(series: &Filled) -> String {
    let mut text = paragraph(&format!("{}: bytes held for a size. {}", series.name, series.source));
    let width = CHANGES[1];
    let in_a_line = (WIDTH - SIZE) / width;
    for (number, columns) in series.columns.chunks(in_a_line).enumerate() {
        let name = |at: usize| format!("[{}]", number * in_a_line + at + 1);
        let begin = |name: &str, cells: String| format!("{name:<SIZE$}{cells}").trim_end().to_owned() + "\n";
        let heads = (0..columns.len()).map(|at| format!("{:>width$}", name(at))).collect();
        text.push_str(&begin("", heads));
        for (at, bytes) in series.sizes.iter().enumerate() {
            let cells = columns.iter().map(|column| format!("{:>width$}", cut(&held(column, at), width - 1)));
            text.push_str(&begin(&format_bytes(*bytes), cells.collect()));
        }
        for (at, column) in columns.iter().enumerate() {
            text.push_str(&(fold(&format!("{} {}, {}", name(at), column.name, provenance(column)), WIDTH, 4) + "\n"));
        }
        text.push('\n');
    }
    sentences(series).iter().fold(text, |text, sentence| text + &paragraph(sentence))
}

/// The sources of published rounds, one paragraph each.
fn rounds(weighed: &Weighed<'_>) -> String {
    let mut told: Vec<(&str, &str)> = Vec::new();
    for figure in &weighed.counted.published {
        let round = (figure.what.as_str(), figure.source.as_str());
        if !told.contains(&round) {
            told.push(round);
        }
    }
    told.into_iter().map(|(what, source)| paragraph(&format!("{what}: published [{source}]."))).collect()
}

/// Published figures, one paragraph each.
fn sources(report: &Report<'_>) -> String {
    let sets = report.published().map(|set| {
        let found = match (set.published.measure, set.found) {
            (Measure::WinShare, _) | (_, None) => of_found(set),
            (Measure::Change, Some((ratio, interval))) => {
                let (low, high) = interval.unzip();
                on_one_line(&Effect { blocks: 0, ratio, low, high, p_adjusted: None }, WIDTH)
            }
        };
        let set_beside = format!(
            "{}: {} published [{}]; {found} here ({}): {}.",
            set.published.what,
            set.published.change,
            set.published.source,
            set.machine,
            set.describe()
        );
        paragraph(&set_beside)
    });
    sets.collect()
}
