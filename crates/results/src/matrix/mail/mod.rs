//! The report of a study as a mail: plain ASCII in 72 columns, as customary on kernel mailing lists. It has what a reviewer
//! asks for: machines, kernels, commands, the number of runs; absolute figures with their spread, changes with their
//! intervals, and a reason for every missing figure.

mod counted;
mod facts;
mod figures;
pub(crate) mod layout;
mod one;

use policy::Policy;
use study::control::BARE;
use study::guest::NO_STUDY;
use study::metric::Provenance;
use study::stats::Effect;
use study_files::definition::{Measure, Workload};
use study_files::matrix::geometric::MIN_WORKLOADS;
use study_files::matrix::{self, Conclusion, Matrix, Row, Total};

use super::answer::{answer, claimed, of_rows};
use super::by_kernel::counts_cleared_bytes;
use super::cells::{Sheet, of_found, place, totals_of};
use super::form::{heading_of, in_form, order};
use super::{HostOf, MachineFigures, Report, all_machine_figures, further, rows_of, sheets};
use crate::figure;
use crate::text::{date_time, enumerate};
use counted::{of_counted, of_series};
use figures::{Extent, estimate, has_figure, interval};
use layout::{Columns, command, fact, folded, item, paragraph};

pub use facts::settings;
pub(super) use figures::why_not;
pub use layout::WIDTH;
pub use one::comparison;

/// Faults and memory are shown only for at most this many workloads.
const FEW: usize = 8;
/// Maximum number of additional columns of the origin's table.
const FORM_COLUMNS: usize = 3;

/// Explains intervals, and why a change is undecided although its interval excludes zero.
const INTERVALS: &str = ", with the 95 % interval of each change by itself; words such as undecided allow for the number of \
    arms and of workloads";
/// Explains why the ratio of two medians can differ from the change.
const MEDIANS: &str = "A change is estimated from pairs of runs next to each other, so it can differ from the ratio \
    of the medians. least..most: of the runs.";
/// The same as [`MEDIANS`], for rows over boots.
const MEDIANS_OF_BOOTS: &str = "A change is estimated from boots next to each other, so it can differ from the ratio of the medians. \
    least..most: of the medians of boots.";

/// Explains what an emulated instruction count contains. Printed next to a result that this may decide.
const CLEARED: &str = "An emulator counts each byte that is cleared (rep stosb) as an instruction, so a difference in zeroing weighs much more \
    here than on a processor.";

pub fn mail(report: &Report<'_>) -> String {
    let mut text = paragraph(&report.definition.question);
    std::iter::once(answer(report)).chain(claimed(report)).for_each(|sentence| text.push_str(&paragraph(&sentence)));
    if report.definition.name == NO_STUDY && counts_cleared_bytes(report) {
        text.push_str(&paragraph(&format!("{CLEARED}{}", cleared_at_allocation(report))));
    }
    if !report.missing.is_empty() {
        text.push_str(&paragraph(&format!("Missing: {}.", report.missing.join("; "))));
    }
    report.lacking.iter().for_each(|sentence| text.push_str(&paragraph(sentence)));
    text.push_str(&circumstances(report));
    report.forms.iter().for_each(|form| text.push_str(&of_form(form)));
    // Where kernels are compared, the policies on each kernel come last.
    let matrices: Vec<&Matrix> = match report.over_kernels() {
        Some(kernels) => [kernels].into_iter().chain(report.over_variants).chain(report.policies()).collect(),
        None => report.policies().into_iter().chain(report.others()).collect(),
    };
    matrices.iter().for_each(|matrix| text.push_str(&of_matrix(report, matrix)));
    text.push_str(&narrowed(super::explained::sheet(report), &[1]));
    text.push_str(&without_figure(&matrices));
    text.push_str(&report.counted.as_ref().map(of_counted).unwrap_or_default());
    report.series.iter().for_each(|one| text.push_str(&of_series(one)));
    text.push_str(&sources(report));
    text.push_str(&further_reasons(report));
    let latest = report.hosts.iter().filter_map(|host| host.measured_unix_s).max();
    let latest =
        latest.map(|unix_s| format!("; the latest comparison began {}", date_time(unix_s))).unwrap_or_default();
    text + paragraph(&format!("Made by pagelab {}{latest}.", report.version)).trim_end() + "\n"
}

/// How to take the clearing at allocation out of the figures, if all kernels were built to do it.
fn cleared_at_allocation(report: &Report<'_>) -> &'static str {
    let is_set = |sentence: &String| sentence.contains("INIT_ON_ALLOC_DEFAULT_ON");
    let has_word = |host: &HostOf| host.machine.kernel_command_line.contains("init_on_alloc=");
    if report.kernels_differ.iter().any(is_set) && !report.hosts.iter().any(has_word) {
        " These kernels also clear memory when they allocate it (INIT_ON_ALLOC_DEFAULT_ON): --cmdline init_on_alloc=0 counts without that."
    } else {
        ""
    }
}

/// Machines, kernels, settings, and the command.
fn circumstances(report: &Report<'_>) -> String {
    let mut text = facts::of_hosts(&report.hosts, &report.definition.boots);
    report.kernels_differ.iter().for_each(|sentence| text.push_str(&fact("Config", sentence)));
    policies(report).iter().for_each(|sentence| text.push_str(&fact("Policy", sentence)));
    text.push_str(&fact("Command", ""));
    text + &command(&report.command) + "\n"
}

/// What the policies of a comparison of kernels do to the program.
fn policies(report: &Report<'_>) -> Vec<String> {
    let definition = report.definition;
    if definition.name != NO_STUDY {
        return Vec::new();
    }
    let named = definition.policies.iter().filter_map(|name| Some((name, name.parse::<Policy>().ok()?)));
    let sentences = named.map(|(name, policy)| format!("{name}: {}", facts::of_policy(policy.granularity)));
    let is_bare = |row: &Row| row.workload.ends_with(&format!(" under {BARE}"));
    let bare = report.matrix.rows.iter().any(is_bare).then(|| {
        format!(
            "{BARE}: with the settings of {}, without pagelab's tracer, whose stops cost instructions too, and without its advice",
            definition.baseline
        )
    });
    sentences.chain(bare).collect()
}

/// The result in the form of the origin's table: a row per configuration, its change, and as many other columns as fit.
fn of_form(form: &matrix::Filled) -> String {
    let further: Vec<&(String, String)> = form.columns.iter().take(FORM_COLUMNS).collect();
    let heads = std::iter::once(figure::title(&form.metric))
        .chain(further.iter().map(|(name, heading)| heading_of(name, heading)));
    let changes = [("change".to_owned(), 9), ("95% interval".to_owned(), 16)];
    let figures = heads.map(|head| (head, 9)).chain(changes).collect();
    let table = Columns { name: 11, figures };
    let mut text = paragraph(&format!("As the origin has it, {}:", form.machine)) + &table.heads();
    for row in &form.rows {
        let names = std::iter::once(&form.metric).chain(further.iter().map(|(name, _)| name));
        let figures = names.map(|name| in_form(row, name));
        let change = row.effect.as_ref().map(|effect| [estimate(effect), interval(effect)]).unwrap_or_default();
        text.push_str(&table.row(&row.name, &figures.chain(change).collect::<Vec<_>>()));
        if let Some(why) = &row.why_not {
            text.push_str(&(folded(&format!("  none: {why}"), 4) + "\n"));
        }
    }
    text.push('\n');
    text + &paragraph(&order(form))
}

/// The rows of each machine, and a table of the totals.
fn of_matrix(report: &Report<'_>, matrix: &Matrix) -> String {
    let mut text = String::new();
    let baseline = &matrix.baseline;
    for machine_figures in all_machine_figures(matrix).into_iter().filter(|one| !is_in_kernels(report, matrix, *one)) {
        let known = rows_of(matrix, machine_figures).filter(|row| row.cells.iter().any(has_figure));
        let (rows, alone): (Vec<&Row>, Vec<&Row>) = known.partition(|row| has_baseline(row));
        let extent = if rows.len() > FEW { Extent::Times } else { Extent::All };
        if !rows.is_empty() {
            let intervals = if rows.iter().any(|row| has_interval(row)) { INTERVALS } else { "" };
            let left_out = if extent == Extent::Times {
                " Faults, page tables and changes of memory are in the tables of the report."
            } else {
                ""
            };
            let is_over_boots = rows.iter().flat_map(|row| &row.cells).any(|cell| cell.basis.boots > 0);
            let medians = if is_over_boots { MEDIANS_OF_BOOTS } else { MEDIANS };
            let what =
                format!("{}: per cent is against {baseline}{intervals}. {medians}{left_out}", place(machine_figures));
            text.push_str(&paragraph(&what));
        }
        rows.iter().for_each(|row| text.push_str(&of_row(report, row, extent)));
        if !alone.is_empty() {
            let names: Vec<String> = alone.iter().map(|row| row.workload.clone()).collect();
            let why = format!("{baseline} has no figure, so these cannot be compared with it");
            text.push_str(&paragraph(&format!("{}: {why}: {}.", place(machine_figures), enumerate(&names))));
        }
        let what = of_rows(report.definition);
        // Policies are alternatives, so a mean over policies describes no program.
        if report.definition.name != NO_STUDY {
            text.push_str(&together(&totals_of(matrix, machine_figures), &matrix.baseline, what));
        }
        // Few workloads have their memory and pages with their figures.
        if extent == Extent::Times && sheets::has_totals(report) {
            let runs = super::figures::of_runs(matrix, machine_figures, report.columns_of(matrix));
            text.push_str(&narrowed(runs, &[]));
        }
        text.push_str(&limits(&rows, what));
    }
    // There is usually one host.
    text + &narrowed(further::of_correlations(matrix), &[1])
}

/// A table of a report. Those of these columns that are the same in all lines are in its caption. Empty without lines.
fn narrowed(Sheet { caption, header, rows }: Sheet, columns: &[usize]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let is_shown = |at: &usize| !columns.contains(at) || rows.iter().any(|row| row[*at] != first[*at]);
    let (shown, common): (Vec<usize>, Vec<usize>) = (0..header.len()).partition(is_shown);
    let chosen = |cells: &[String]| shown.iter().map(|at| cells[*at].clone()).collect::<Vec<_>>();
    let common: String = common.iter().map(|at| format!("; {} {}", header[*at], first[*at])).collect();
    let rows = rows.iter().map(|row| chosen(row)).collect();
    layout::table(&Sheet { caption: caption + &common, header: chosen(&header), rows })
}

/// Whether these figures of a matrix are already in the matrix of kernels.
fn is_in_kernels(report: &Report<'_>, matrix: &Matrix, (machine, provenance): MachineFigures<'_>) -> bool {
    let Some(kernels) = report.over_kernels() else { return false };
    // The place of a guest is its kernel, and how it ran: `new, emulated`.
    let is_kernel = kernels.policies.iter().any(|kernel| machine.split(", ").next() == Some(kernel));
    is_kernel && provenance != Provenance::Modelled && matrix.policies == report.definition.policies
}

/// A row with its figures, and in a study also the command of its workload.
fn of_row(report: &Report<'_>, row: &Row, extent: Extent) -> String {
    let is_own = |workload: &&Workload| {
        let rest = row.workload.strip_prefix(&workload.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(',') || rest.starts_with(" under "))
    };
    let definition = report.definition;
    let workload = definition.workloads.iter().find(is_own).filter(|_| definition.name != NO_STUDY);
    let text = figures::of_row(row, extent);
    match workload.map(|workload| &workload.command).filter(|words| !words.is_empty()) {
        Some(words) => text + "Command\n" + &command(words) + "\n",
        None => text,
    }
}

fn has_baseline(row: &Row) -> bool {
    row.cells.iter().any(|cell| cell.conclusion == Conclusion::Baseline)
}

fn has_interval(row: &Row) -> bool {
    row.cells.iter().flat_map(|cell| cell.effects.values()).any(|effect| effect.low.is_some())
}

/// Distinct remarks on the rows of a machine, each with the rows to which it applies. `what`: the noun for the rows.
fn limits(rows: &[&Row], what: &str) -> String {
    let line = |(_, note, workloads): &(&str, &str, Vec<&str>)| {
        let of = if workloads.len() == rows.len() { format!("all {what}") } else { workloads.join(", ") };
        item(&format!("{of}: {note}"))
    };
    let lines: String = further::limits(rows.iter().copied()).iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("What limits these figures:\n{lines}\n") }
}

/// The rows without any figure, with the reasons.
fn without_figure(matrices: &[&Matrix]) -> String {
    let is_empty = |row: &&Row| !row.cells.iter().any(has_figure);
    let rows: Vec<Row> = matrices.iter().flat_map(|matrix| &matrix.rows).filter(is_empty).cloned().collect();
    let line = |line: &Vec<String>| item(&format!("{}, {}: {}: {}", line[0], line[1], line[2], line[3]));
    let lines: String = sheets::reasons(&rows).rows.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("No figure:\n{lines}\n") }
}

/// The means over all rows, if there are several rows. `what`: the noun for the rows.
fn together(totals: &[&Total], baseline: &str, what: &str) -> String {
    let is_mean = |total: &&&Total| total.mean.is_some_and(|mean| mean.of > 1);
    let all = totals.iter().filter(|total| total.policy != baseline).filter(is_mean);
    let (few, others): (Vec<&&Total>, Vec<&&Total>) = all.partition(|total| total.has_too_few());
    if others.is_empty() && few.is_empty() {
        return String::new();
    }
    if others.is_empty() {
        return paragraph(&format!("No mean over all {what}: it needs {MIN_WORKLOADS} of them."));
    }
    let table = Columns::of_equal_width(20, &["change", "95% interval", "ahead of all others in"]);
    let mut text = format!("geometric mean of the changes over all {what}\n") + &table.heads();
    for total in others {
        let effect = total.mean.map(|mean| mean.effect());
        let [change, range] = effect.map(|effect| [estimate(&effect), interval(&effect)]).unwrap_or_default();
        let won = format!("{} of {}", total.wins.won, total.wins.races);
        text.push_str(&table.row(&total.policy, &[change, range, won]));
    }
    text + "\n"
}

/// The published figures and their sources, one paragraph each.
fn sources(report: &Report<'_>) -> String {
    let sets = report.published().map(|set| {
        let found = match (set.published.measure, set.found) {
            (Measure::WinShare, _) | (_, None) => of_found(set),
            (Measure::Change, Some((ratio, interval))) => {
                let (low, high) = interval.unzip();
                on_one_line(&Effect { blocks: 0, ratio, low, high, p_adjusted: None })
            }
        };
        let published = &set.published;
        paragraph(&format!(
            "{}: {} published [{}]; {found} here ({}): {}.",
            published.what,
            published.change,
            published.source,
            set.machine,
            set.describe()
        ))
    });
    sets.collect()
}

/// The reasons why figures can differ from the published ones, if the beginning of the mail has only some of them.
fn further_reasons(report: &Report<'_>) -> String {
    let sheet = sheets::all_differences(report);
    let items: String = sheet.rows.iter().map(|row| item(&row[0])).collect();
    if items.is_empty() { items } else { format!("{}:\n{items}\n", sheet.caption) }
}

/// `-12.3% -13.4..-11.2`
fn on_one_line(effect: &Effect) -> String {
    format!("{} {}", estimate(effect), interval(effect)).trim_end().to_owned()
}

#[cfg(test)]
mod tests;
