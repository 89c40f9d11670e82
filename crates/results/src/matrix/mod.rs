//! The report of a study ([`Report`]): its matrix as terminal tables, Markdown, mail, JSON document and HTML page.
//!
//! All forms are made from the same [`Sheet`]s; the page also has pictures. The *origin* of a study is the publication
//! whose claim the study tries to reproduce.

mod amount;
mod answer;
mod by_kernel;
mod cells;
pub(crate) mod counted;
mod explained;
mod figures;
mod fits;
mod form;
pub(crate) mod further;
mod json;
pub(crate) mod mail;
mod rounds;
mod samples;
mod screen;
pub(crate) mod series;
mod sheets;

use policy::machine::Machine;
use study::metric::Provenance;
use study_files::definition::Definition;
use study_files::matrix::geometric::MIN_WORKLOADS;
use study_files::matrix::{Conclusion, Filled, Matrix, Reproduction, Row, Total};

use crate::figure;
use crate::grid;
use crate::text::{fold, printable};

pub use answer::{answer, claim, differences};
pub(crate) use answer::{claimed, title};
pub use cells::Sheet;
pub(crate) use cells::{in_cell, place, totals_of};
pub use counted::CountedCosts;
pub use explained::ExplainedPolicy;
pub(crate) use form::of_origin;
pub use json::{SCHEMA, document};
pub use mail::{WIDTH as MAIL_WIDTH, comparison as mail_of, mail, settings};
pub use rounds::{after_round, lacking};
pub use samples::{CSV_COLUMNS, SampleSource, csv, json_lines, parquet};
pub use screen::screen;
pub use sheets::sheets;

/// Everything that a report shows.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The study.
    pub definition: &'a Definition,
    /// The matrix of the study.
    pub matrix: &'a Matrix,
    /// The same rows with boots as columns instead of policies, if the study compares boots.
    pub over_boots: Option<&'a Matrix>,
    /// The table in the origin's form, for each host that measured a part of it.
    pub forms: Vec<Filled>,
    /// The counted work, if the study has any.
    pub counted: Option<CountedCosts<'a>>,
    /// Series of sizes with their values.
    pub series: Vec<study_files::series::Filled>,
    /// Why policies change user time, if the study asks for it.
    pub explained: Vec<ExplainedPolicy>,
    /// The same rows with variants as columns instead of policies: one matrix for all workloads with the same variants.
    pub over_variants: &'a [Matrix],
    /// The hosts that measured something.
    pub hosts: Vec<HostOf>,
    /// What the study asks for and was not run, in words; empty if everything was run.
    pub missing: Vec<String>,
    /// What is still undecided, and what would decide it ([`lacking`]).
    pub lacking: Option<String>,
    /// How the configurations of the kernels differ, or why that is unknown; absent if no kernels are compared.
    pub kernels_differ: Option<String>,
    /// The command line that measured what the report shows.
    pub command: Vec<String>,
    /// The version of pagelab.
    pub version: String,
}

impl Report<'_> {
    /// Each published figure with the figure found here: of policies, boots, variants and the origin's table.
    pub fn published(&self) -> impl Iterator<Item = &Reproduction> + Clone {
        self.published_of_cells().chain(self.forms.iter().flat_map(Filled::published))
    }

    /// Each published figure of policies, boots and variants with the figure found here.
    fn published_of_cells(&self) -> impl Iterator<Item = &Reproduction> + Clone {
        std::iter::once(self.matrix).chain(self.others()).flat_map(|matrix| &matrix.published)
    }

    /// The main matrix, if its columns are policies.
    pub fn policies(&self) -> Option<&Matrix> {
        let has_others = self.matrix.policies.len() > 1 || self.over_variants.is_empty();
        has_others.then_some(self.matrix)
    }

    /// The matrix of boots, if the study compares kernels that pagelab boots in guests. Its rows have every figure of the policies.
    pub(crate) fn over_kernels(&self) -> Option<&Matrix> {
        let boots = &self.definition.boots;
        let are_guests = !boots.is_empty() && boots.iter().all(|boot| boot.guest.is_some());
        self.over_boots.filter(|_| are_guests)
    }

    /// The noun for the columns of a matrix: policy, boot or variant.
    pub(crate) fn columns_of(&self, matrix: &Matrix) -> &'static str {
        let is_boot = |name: &String| self.definition.boots.iter().any(|boot| boot.name == *name);
        match matrix.policies == self.definition.policies {
            true => "policy",
            false if matrix.policies.iter().all(is_boot) => "boot",
            false => "variant",
        }
    }

    /// The matrices of boots and of variants.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Matrix> + Clone {
        self.over_boots.into_iter().chain(self.over_variants)
    }
}

/// A host that measured a part of a study.
#[derive(Clone, Debug)]
pub struct HostOf {
    /// The name of the host in the rows of the matrix.
    pub label: String,
    pub machine: Machine,
    /// When its latest comparison began, in seconds since 1970; absent if nothing was measured.
    pub measured_unix_s: Option<i64>,
    /// The settings of transparent huge pages under the baseline, if known ([`settings`]).
    pub settings: Option<String>,
}

/// The result as sentences: the answer, the verdict on the origin's claim, one for each machine and policy, and other
/// findings.
pub fn conclude(report: &Report<'_>) -> Vec<String> {
    let matrices = std::iter::once(report.matrix).chain(report.over_variants);
    let totals = matrices.flat_map(|matrix| matrix.totals.iter().map(move |total| (matrix, total)));
    let totals = totals.filter(|_| sheets::has_totals(report));
    let totals = totals.filter_map(|(matrix, total)| sentence_on_total(matrix, total));
    std::iter::once(answer(report)).chain(claimed(report)).chain(totals).chain(findings(report)).collect()
}

/// Findings that do not concern one policy on one machine: the origin's order, counted work, series of sizes, and what
/// is missing.
pub(crate) fn findings(report: &Report<'_>) -> Vec<String> {
    let mut sentences: Vec<String> = report.forms.iter().map(form::order).collect();
    sentences.extend(report.counted.iter().flat_map(counted::sentences));
    sentences.extend(report.series.iter().flat_map(series::sentences));
    if !report.missing.is_empty() {
        sentences.push(format!("Missing: {}.", report.missing.join("; ")));
    }
    sentences.extend(report.lacking.clone());
    sentences
}

fn sentence_on_total(matrix: &Matrix, total: &Total) -> Option<String> {
    let baseline = &matrix.baseline;
    let mean = total.mean.filter(|_| total.policy != *baseline)?;
    let effect = total.change()?;
    let over = match mean.of {
        1 => "the 1 workload that has a figure".to_owned(),
        count => format!("these {count} workloads (geometric mean)"),
    };
    let amount = answer::amount(total, &effect);
    let interval = |range| format!("{} interval {range}", figure::confidence(0.95));
    let like_these = total.like_these().and_then(|effect| amount.range(&effect));
    let like_these = like_these.map(|range| format!("over workloads like these {range}"));
    let ranges = amount.range(&effect).map(interval).into_iter().chain(like_these).collect::<Vec<_>>();
    let apart = || if ranges.is_empty() { String::new() } else { format!(" ({})", ranges.join("; ")) };
    let result = match total.conclusion {
        _ if total.has_too_few() => {
            format!("no mean over {} workloads, because it needs {MIN_WORKLOADS}; see each workload", mean.of)
        }
        Conclusion::Better | Conclusion::Worse | Conclusion::Modelled => {
            format!("{} over {over}{}", amount.against(baseline), apart())
        }
        Conclusion::Equivalent => format!("equivalent to {baseline} over {over}{}", apart()),
        _ => format!("no difference from {baseline} is shown over {over}{}", cells::open_range(&effect)),
    };
    let wins = &total.wins;
    let front = match wins.races {
        0 => String::new(),
        races => format!("; ahead of all others in {} of {races}, level with some in {}", wins.won, wins.tied),
    };
    let (machine, provenance) = cells::named((&total.machine, total.provenance));
    Some(format!("{} on {machine}, {provenance}: {result}{front}.", total.policy))
}

/// `measured`, `modelled`.
pub(crate) fn provenance(provenance: Provenance) -> &'static str {
    crate::csv::provenance(provenance)
}

/// The report for a terminal of this width.
pub fn render(report: &Report<'_>, width: usize) -> String {
    let line = |text: &str| fold(&printable(text), width, 4);
    let mut text = line(&format!("{}: {}", report.definition.name, report.definition.question)) + "\n";
    for sheet in sheets(report) {
        let table = grid::of_columns(&sheet.header, sheet.rows.iter().cloned(), width);
        text.push_str(&format!("\n{}\n{table}\n", line(&sheet.caption)));
    }
    for sentence in conclude(report) {
        text.push_str(&format!("\n{}", line(&sentence)));
    }
    text + "\n"
}

/// The report as Markdown.
pub fn markdown(report: &Report<'_>) -> String {
    let mut text = format!("# {}\n\n{}\n", cell(&report.definition.name), cell(&report.definition.question));
    for sentence in conclude(report) {
        text.push_str(&format!("\n{}\n", cell(&sentence)));
    }
    for Sheet { caption, header, rows } in sheets(report) {
        let line =
            |cells: &[String]| format!("| {} |\n", cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | "));
        let rule = format!("|{}\n", "---|".repeat(header.len()));
        text.push_str(&format!("\n## {}\n\n{}{rule}", cell(&caption), line(&header)));
        rows.iter().for_each(|row| text.push_str(&line(row)));
    }
    text
}

/// Text with all Markdown syntax escaped.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for c in printable(text).chars() {
        if "\\`*_{}[]<>#|".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// A machine and the provenance of its figures. Figures are combined only within such a pair.
pub(crate) type MachineFigures<'a> = (&'a str, Provenance);

/// Distinct pairs of machine and provenance, in the order of the rows.
pub(crate) fn all_machine_figures(matrix: &Matrix) -> Vec<MachineFigures<'_>> {
    let mut all_machine_figures: Vec<MachineFigures<'_>> = Vec::new();
    for row in &matrix.rows {
        let machine_figures = (row.machine.as_str(), row.provenance);
        if !all_machine_figures.contains(&machine_figures) {
            all_machine_figures.push(machine_figures);
        }
    }
    all_machine_figures
}

/// The rows of one machine and provenance.
pub(crate) fn rows_of<'a>(matrix: &'a Matrix, machine_figures: MachineFigures<'a>) -> impl Iterator<Item = &'a Row> {
    matrix.rows.iter().filter(move |row| (row.machine.as_str(), row.provenance) == machine_figures)
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
