//! The report as a mail: plain text in 72 columns, as kernel lists take it. A row for each arm, per cent against the
//! baseline, real, kernel and user time with their intervals.

use policy::size::format_bytes;
use study::definition::Measure;
use study::matrix::{Cell, Filled, Matrix, Row, Standing, Total};
use study::metric::names;
use study::stats::Effect;

use super::answer::{answer, claimed};
use super::cells::word;
use super::cells::{of_found, place, totals_of};
use super::form::{heading_of, in_form, order};
use super::{Report, Weighed, figures, further, grounds, rows_of};
use crate::figure;
use crate::text::{ascii, fold};

/// Columns of a mail.
const WIDTH: usize = 72;
/// Columns of a policy's name.
const NAME: usize = 20;
/// Columns of a change, with the space before it, where there are three and where there are four of them.
const CHANGES: [usize; 2] = [17, 13];

/// Columns of the origin's form beside its first three, and how wide names and columns are there.
const FORM_COLUMNS: usize = 3;
const FORM_NAME: usize = 19;
const FORM_WIDTH: usize = 9;

/// The mail's text.
pub fn mail(report: &Report<'_>) -> String {
    let mut text = paragraph(&report.definition.question);
    std::iter::once(answer(report)).chain(claimed(report)).for_each(|sentence| text.push_str(&paragraph(&sentence)));
    if !report.missing.is_empty() {
        text.push_str(&paragraph(&format!("Missing: {}.", report.missing.join("; "))));
    }
    report.forms.iter().for_each(|form| text.push_str(&of_form(form)));
    report.policies().into_iter().chain(report.others()).for_each(|matrix| text.push_str(&of_matrix(matrix)));
    text.push_str(&report.counted.as_ref().map(of_counted).unwrap_or_default());
    text.push_str(&sources(report));
    text.push_str(&paragraph(&format!("Made by pagelab {}.", report.version)));
    ascii(text.trim_end()).into_owned() + "\n"
}

/// The origin's own form: a row for each configuration, its change, and as many columns as find room.
fn of_form(form: &Filled) -> String {
    let columns: Vec<&(String, String)> = form.columns.iter().take(FORM_COLUMNS).collect();
    let mut text = paragraph(&format!("As the origin has it, {}:", form.machine));
    let heads = std::iter::once(figure::title(&form.metric))
        .chain(columns.iter().map(|(name, heading)| heading_of(name, heading)));
    let heads: Vec<String> = heads.map(|name| cut(&name, FORM_WIDTH - 1)).collect();
    let in_line = |name: &str, change: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>FORM_WIDTH$}")).collect();
        format!("{:<FORM_NAME$}{change:>16}{cells}", cut(name, FORM_NAME)).trim_end().to_owned() + "\n"
    };
    text.push_str(&in_line("", "change", &heads));
    for row in &form.rows {
        let change = match (&row.why_not, &row.effect) {
            (Some(_), _) => "none".to_owned(),
            (None, Some(effect)) => percent(effect, 15),
            (None, None) => "0.0%".to_owned(),
        };
        let names = std::iter::once(&form.metric).chain(columns.iter().map(|(name, _)| name));
        let cells: Vec<String> = names.map(|name| in_form(row, name)).collect();
        text.push_str(&in_line(&row.name, &change, &cells));
    }
    text.push('\n');
    text + &paragraph(&order(form))
}

/// A paragraph for each row, and a table of what they say together, machine by machine.
fn of_matrix(matrix: &Matrix) -> String {
    let mut text = String::new();
    for ground in grounds(matrix) {
        let rows: Vec<&Row> = rows_of(matrix, ground).filter(has_figure).collect();
        if rows.is_empty() {
            continue;
        }
        text.push_str(&paragraph(&format!("{}:", place(ground))));
        rows.iter().for_each(|row| text.push_str(&workload(row)));
        text.push_str(&together(&totals_of(matrix, ground), &matrix.baseline));
        text.push_str(&limits(&rows));
    }
    text
}

/// What must be known to read the rows of a machine, each once with the rows that it is of.
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

/// The metrics of a row that have a column, with their headings: the one that decides first.
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
    let width = CHANGES[usize::from(columns.len() > 3)];
    text.push_str(&line("", columns.iter().map(|(title, _)| cut(title, width - 1)), width));
    for cell in &row.cells {
        let changes = columns.iter().map(|(_, metric)| match (&cell.standing, cell.effects.get(*metric)) {
            (Standing::None { .. }, _) => "none".to_owned(),
            (Standing::Baseline, _) => "0.0%".to_owned(),
            (_, Some(effect)) => percent(effect, width - 1),
            (_, None) => "none".to_owned(),
        });
        text.push_str(&line(&cell.policy, changes, width));
        let word = word(&cell.standing);
        if !matches!(cell.standing, Standing::Baseline | Standing::None { .. } | Standing::Modelled) {
            text.push_str(&format!("    {word}\n"));
        }
    }
    figures::own(row).chunks(3).for_each(|metrics| text.push_str(&beside(row, metrics)));
    columns.iter().for_each(|(title, metric)| text.push_str(&zeros(row, title, metric)));
    text + "\n"
}

/// Why a column has cells without a change, where zeros leave none.
fn zeros(row: &Row, title: &str, metric: &str) -> String {
    let is_compared = |cell: &&Cell| !matches!(cell.standing, Standing::Baseline | Standing::None { .. });
    let lacks = |cell: &Cell| cell.medians.contains_key(metric) && !cell.effects.contains_key(metric);
    match row.cells.iter().filter(is_compared).any(lacks) {
        true => fold(&format!("{title}: none where a trial has 0, to which there is no ratio"), WIDTH, 2) + "\n",
        false => String::new(),
    }
}

/// What the programs print beside: changes alone.
fn beside(row: &Row, metrics: &[String]) -> String {
    let width = CHANGES[0];
    let mut text = line("", metrics.iter().map(|metric| cut(metric, width - 1)), width);
    for cell in &row.cells {
        let changes = metrics.iter().map(|metric| match (&cell.standing, cell.effects.get(metric)) {
            (Standing::None { .. }, _) => "none".to_owned(),
            (Standing::Baseline, _) => "0.0%".to_owned(),
            (_, Some(effect)) => percent(effect, width - 1),
            (_, None) => "none".to_owned(),
        });
        text.push_str(&line(&cell.policy, changes, width));
    }
    text
}

fn line(name: &str, cells: impl Iterator<Item = String>, width: usize) -> String {
    let cells = cells.map(|cell| format!("{cell:>width$}")).collect::<String>();
    format!("{:<NAME$}{cells}", cut(name, NAME)).trim_end().to_owned() + "\n"
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// `-12.3% +-1.1`: the half width of the interval, the wider side of it. Without digits after the point where they find no
/// room.
fn percent(effect: &Effect, width: usize) -> String {
    let change = (effect.ratio - 1.0) * 100.0;
    let ends = effect.low.zip(effect.high);
    let half = ends.map(|(low, high)| (effect.ratio - low).max(high - effect.ratio) * 100.0);
    let of_digits = |digits: usize| {
        let half = half.map(|half| format!(" +-{half:.digits$}")).unwrap_or_default();
        format!("{change:+.digits$}%{half}")
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
    text.push_str(&line("", ["geomean", "beats all", "least (chance)"].into_iter().map(str::to_owned), width));
    for total in others {
        let mean = total.mean.map(|mean| percent(&mean.effect(), width - 1)).unwrap_or_default();
        let wins = &total.wins;
        let led = format!("{}/{} ({:.1})", wins.led, wins.races, wins.led_by_chance);
        let cells = [mean, format!("{}/{}", wins.won, wins.races), led];
        text.push_str(&line(&total.policy, cells.into_iter(), width));
    }
    text + "\n"
}

/// What was counted, in the origin's form: a table for each phase and variant, and what is known of each cost.
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
        text.push_str(&line("", table.backings().into_iter().map(|backing| cut(backing, width - 1)), width));
        for (name, cells) in weighed.lines(phase, variant) {
            text.push_str(&line(&name, cells.into_iter(), width));
        }
        text.push('\n');
    }
    let costs = super::counted::told_costs(weighed).join("; ");
    text + &paragraph(&format!("What each event costs: {costs}.")) + &rounds(weighed)
}

/// The sources of published rounds, a paragraph each.
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

/// Published figures, a paragraph each.
fn sources(report: &Report<'_>) -> String {
    let sets = report.published().map(|set| {
        let found = match (set.published.measure, set.found) {
            (Measure::WinShare, _) | (_, None) => of_found(set),
            (Measure::Change, Some((ratio, interval))) => {
                let (low, high) = interval.unzip();
                percent(&Effect { blocks: 0, ratio, low, high, p_adjusted: None }, WIDTH)
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
