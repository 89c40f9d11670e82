//! A study as one HTML file: the answer, the matrix as a heat map, forests, win shares, memory against speed, coverage,
//! drift, published figures in their origin's form, and what made each row.

mod forest;
mod map;
mod origin;
mod trade;
mod wins;

use study::matrix::Matrix;

use super::parts::{command, page, section, typeset};
use super::tables::wide;
use crate::matrix::{Report, Sheet, answer, claim, conclude, further, grounds, sheets};
use crate::text::escape;

/// Where the origins of a matrix's rows stand on the page: the matrix of policies, and that of boots, have their own.
#[derive(Clone, Copy)]
struct Anchors {
    prefix: &'static str,
}

impl Anchors {
    const OF_POLICIES: Anchors = Anchors { prefix: "row" };
    const OF_BOOTS: Anchors = Anchors { prefix: "boots-row" };

    /// The id of what made a row.
    fn of(self, matrix: &Matrix, row: &study::matrix::Row) -> String {
        let at = matrix.rows.iter().position(|one| std::ptr::eq(one, row)).unwrap_or_default();
        format!("{}{at}", self.prefix)
    }
}

/// The page.
pub fn report(report: &Report<'_>) -> String {
    let matrix = report.matrix;
    let boots = report.over_boots.map(|boots| {
        let shown = [map::maps(boots, Anchors::OF_BOOTS), forest::forests(boots, Anchors::OF_BOOTS)];
        shown.concat()
    });
    let of_origin = further::of_origin(report.published());
    // What has a section of its own is not shown again.
    let others: Vec<Sheet> = sheets(report).into_iter().filter(|sheet| !of_origin.contains(sheet)).collect();
    let sections = [
        section("Answer", "answer", &sentences(report)),
        section("Matrix", "matrix", &map::maps(matrix, Anchors::OF_POLICIES)),
        section("Changes against the baseline", "changes", &forest::forests(matrix, Anchors::OF_POLICIES)),
        section("Boots compared", "boots", &boots.unwrap_or_default()),
        section("Win shares", "wins", &wins::shares(matrix)),
        section("As the origin has it", "published", &tables(&of_origin)),
        section("Memory against speed", "trade", &trade::trades(matrix)),
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
    let lead = |text: &str| format!("<p class=\"lead\">{}</p>\n", escape(&typeset(text)));
    format!(
        "<header>\n<p class=\"kicker\">pagelab · study {} · {}</p>\n<h1>{}</h1>\n{}{}{}</header>\n",
        escape(&definition.name),
        definition.size.name(),
        escape(&typeset(&definition.question)),
        lead(&answer(report)),
        lead(&claim(report)),
        command("command that made this page", &report.command)
    )
}

/// What stands in the heading is not said again.
fn sentences(report: &Report<'_>) -> String {
    let sentence = |text: &String| format!("<p>{}</p>\n", escape(&typeset(text)));
    conclude(report).iter().skip(2).map(sentence).collect()
}

/// A table of each machine.
fn by_ground(matrix: &Matrix, of: fn(&Matrix, (&str, study::metric::Provenance)) -> Sheet) -> String {
    tables(&grounds(matrix).into_iter().map(|ground| of(matrix, ground)).collect::<Vec<_>>())
}

fn tables(sheets: &[Sheet]) -> String {
    sheets.iter().filter(|sheet| !sheet.rows.is_empty()).map(table).collect()
}

fn table(sheet: &Sheet) -> String {
    let head: String = sheet.header.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
    let cell = |(at, text): (usize, &String)| match at {
        0 => format!("<th scope=\"row\">{}</th>", escape(&typeset(text))),
        _ => format!("<td>{}</td>", escape(&typeset(text))),
    };
    let cells = |row: &Vec<String>| format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>());
    wide(&sheet.caption, &head, &sheet.rows.iter().map(cells).collect::<String>())
}

fn footer(report: &Report<'_>) -> String {
    format!(
        "<footer><p>Made by pagelab {}. <code>pagelab study export</code> writes every sample.</p></footer>\n",
        escape(&report.version)
    )
}

#[cfg(test)]
mod tests;
