//! A study as one HTML file: the answer, the matrix as a heat map, forest plots, win shares, memory against speed,
//! coverage, drift, published figures in their origin's form, and how each row was measured.

mod forest;
mod map;
mod origin;
mod trade;
mod wins;

use study_files::matrix::Matrix;

use super::parts::{capitalised_first, command, lead, marked, page, section, title, typeset};
use super::tables::wide;
use crate::matrix::{
    Report, Sheet, all_machine_figures, answer, claimed, counted, findings, further, of_origin, series, sheets,
};
use crate::sentence::claim_and_rest;
use crate::text::escape;

/// Prefixes of HTML ids, so that rows of several matrices have distinct anchors. An anchor leads to how the row was
/// measured.
#[derive(Clone, Copy)]
enum Anchors {
    Policies,
    Boots,
    /// The matrix of variants with this index.
    Variants(usize),
}

impl Anchors {
    /// The HTML id of the place that shows how a row was measured.
    fn of(self, matrix: &Matrix, row: &study_files::matrix::Row) -> String {
        let at = matrix.rows.iter().position(|one| std::ptr::eq(one, row)).expect("it is a row of the matrix");
        format!("{}{at}", self.prefix())
    }

    /// The prefix of the ids of a matrix.
    fn prefix(self) -> String {
        match self {
            Anchors::Policies => "row".to_owned(),
            Anchors::Boots => "boots-row".to_owned(),
            Anchors::Variants(number) => format!("variants{number}-row"),
        }
    }
}

/// Renders the page.
pub fn report(report: &Report<'_>) -> String {
    let matrix = report.matrix;
    let pictures = |matrix: &Matrix, anchors| [forest::forests(matrix, anchors), map::maps(matrix, anchors)].concat();
    let boots = report.over_boots.map(|boots| pictures(boots, Anchors::Boots));
    let of_variants = |(number, matrix): (usize, &Matrix)| {
        let anchors = Anchors::Variants(number);
        let pictures = pictures(matrix, anchors);
        [pictures, wins::shares(matrix, anchors), trade::trades(matrix, anchors)].concat()
    };
    let variants: String = report.over_variants.iter().enumerate().map(of_variants).collect();
    let of_policies = |shown: &dyn Fn(&Matrix) -> String| report.policies().map(shown).unwrap_or_default();
    let of_counted = report.counted.iter().flat_map(counted::of_origin);
    let of_origin: Vec<Sheet> = of_origin(report).into_iter().chain(of_counted).collect();
    // Tables that have a section of their own are not repeated here.
    let of_series = series::sheets(&report.series);
    let has_own = |sheet: &Sheet| of_origin.contains(sheet) || of_series.contains(sheet);
    let others: Vec<Sheet> = sheets(report).into_iter().filter(|sheet| !has_own(sheet)).collect();
    let sections = [
        section("Findings", "findings", &sentences(report)),
        section(
            "Changes against the baseline",
            "changes",
            &of_policies(&|matrix| forest::forests(matrix, Anchors::Policies)),
        ),
        section("Matrix", "matrix", &of_policies(&|matrix| map::maps(matrix, Anchors::Policies))),
        section("Variants compared", "variants", &variants),
        section("Boots compared", "boots", &boots.unwrap_or_default()),
        section("Win shares", "wins", &of_policies(&|matrix| wins::shares(matrix, Anchors::Policies))),
        section("As the origin has it", "published", &tables(&of_origin)),
        section("By size", "series", &tables(&of_series)),
        section("Memory against speed", "trade", &of_policies(&|matrix| trade::trades(matrix, Anchors::Policies))),
        section("Coverage", "coverage", &by_ground(matrix, further::of_coverage)),
        section("Drift", "drift", &by_ground(matrix, further::of_drift)),
        section("Tables", "tables", &tables(&others)),
        section("Hosts", "hosts", &tables(&[further::of_hosts(&report.hosts)])),
        section("Where each row comes from", "origin", &origin::origins(report)),
    ];
    page(&report.definition.name, &header(report), &sections.concat(), &footer(report))
}

fn header(report: &Report<'_>) -> String {
    let definition = report.definition;
    let answered = crate::matrix::title(report);
    let (claim, _) = claim_and_rest(&answered);
    // A policy's name keeps its letters.
    let claim = if claim.starts_with("asking for ") { capitalised_first(claim) } else { claim.to_owned() };
    format!(
        "<header>\n<p class=\"kicker\">pagelab · study {} · {}</p>\n{}{}{}{}{}</header>\n",
        escape(&definition.name),
        definition.size.name(),
        title(claim.trim_end_matches('.')),
        format_args!("<p class=\"lead\">{}</p>\n", marked(&typeset(&definition.question))),
        lead(&answer(report)),
        claimed(report).map(|claim| lead(&claim)).unwrap_or_default(),
        command("command that made this page", &report.command)
    )
}

/// Findings that need a sentence: the origin's order, counted work, series, and what is missing.
fn sentences(report: &Report<'_>) -> String {
    findings(report).iter().map(|sentence| format!("<p>{}</p>\n", escape(&typeset(sentence)))).collect()
}

/// One table per machine.
fn by_ground(matrix: &Matrix, of: fn(&Matrix, (&str, study::metric::Provenance)) -> Sheet) -> String {
    tables(
        &all_machine_figures(matrix).into_iter().map(|machine_figures| of(matrix, machine_figures)).collect::<Vec<_>>(),
    )
}

fn tables(sheets: &[Sheet]) -> String {
    sheets.iter().filter(|sheet| !sheet.rows.is_empty()).map(table).collect()
}

fn table(sheet: &Sheet) -> String {
    let head: String = sheet.header.iter().map(|title| format!("<th scope=\"col\">{}</th>", whole(title))).collect();
    let cell = |(at, text): (usize, &String)| match at {
        0 => format!("<th scope=\"row\">{}</th>", escape(&typeset(text))),
        _ => format!("<td>{}</td>", escape(&typeset(text))),
    };
    let cells = |row: &Vec<String>| format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>());
    wide(&sheet.caption, &head, &sheet.rows.iter().map(cells).collect::<String>())
}

/// A heading whose names are not broken at hyphens, if they are of moderate length.
fn whole(title: &str) -> String {
    let word = |word: &str| {
        if word.contains('-') && word.chars().count() <= 24 {
            format!("<span class=\"name\">{}</span>", escape(word))
        } else {
            escape(word)
        }
    };
    title.split(' ').map(word).collect::<Vec<String>>().join(" ")
}

fn footer(report: &Report<'_>) -> String {
    format!(
        "<footer><p>Made by pagelab {}. <code>pagelab study export</code> writes every sample.</p></footer>\n",
        escape(&report.version)
    )
}

#[cfg(test)]
mod tests;
