//! The matrix of capabilities (which page each kind of memory can get) as one HTML file.

use policy::capability::{Cell, Matrix, Outcome, Way};
use policy::size::PageSize;

use super::parts::{command, lead, list, page, section, title};
use super::tables::wide;
use crate::capabilities::{LEGEND, Notes, grouped, heading, reason_of, short, ways};
use crate::text::{escape, printable};

/// Renders the page. `pagelab` is the command line that made the matrix, and the version.
pub fn report(matrix: &Matrix, pagelab: (&[String], &str)) -> String {
    let mut notes = Notes::default();
    let sizes: String =
        grouped(matrix, &mut notes).iter().map(|(sizes, _)| of_sizes(matrix, sizes, &mut notes)).collect();
    let sections =
        [sizes, section("Reasons", "reasons", &reasons(&notes)), section("Ways and cells", "ways", &described(matrix))];
    let title = format!("capabilities of Linux {}", printable(&matrix.kernel));
    let (words, version) = pagelab;
    let footer = format!("<footer>\n<p>Made by pagelab {}.</p>\n</footer>\n", escape(version));
    page(&title, &header(matrix, words), &sections.concat(), &footer)
}

fn header(matrix: &Matrix, words: &[String]) -> String {
    format!(
        "<header>\n<p class=\"kicker\">pagelab · capabilities</p>\n{}{}{}</header>\n",
        title(&answer(matrix)),
        lead(&heading(matrix)),
        command("made by", words)
    )
}

/// `Linux 6.18.44 gave 2M in 42 of 63 combinations of memory and way`: for the size of a PMD leaf, or without one for
/// the largest size.
fn answer(matrix: &Matrix) -> String {
    let release = matrix.kernel.split(' ').next().unwrap_or_default();
    let Some(size) = matrix.pmd.filter(|pmd| matrix.sizes().contains(pmd)).or(matrix.sizes().last().copied()) else {
        return format!("Nothing was tried on Linux {}", printable(release));
    };
    let of_size = || matrix.cells.iter().filter(|cell| cell.size == size);
    let count = |is: fn(&Outcome) -> bool| of_size().filter(|cell| is(&cell.outcome)).count();
    let large = count(|outcome| matches!(outcome, Outcome::Large { .. }));
    let tried = count(|outcome| !matches!(outcome, Outcome::NotAvailable { .. }));
    format!("Linux {} gave {size} in {large} of {tried} combinations of memory and way", printable(release))
}

/// The table of several sizes whose cells are equal.
fn of_sizes(matrix: &Matrix, sizes: &[PageSize], notes: &mut Notes) -> String {
    let Some(first) = sizes.first() else { return String::new() };
    let named = sizes.iter().map(PageSize::to_string).collect::<Vec<_>>().join(", ");
    let ways = ways(matrix);
    let head = |way: &Way| {
        let (what, heading) = (escape(way.describe()), escape(way.heading()));
        format!("<th scope=\"col\"><abbr title=\"{what}\">{heading}</abbr></th>")
    };
    let heads: String = ways.iter().map(head).collect();
    let mut rows = String::new();
    for memory in matrix.rows(*first) {
        let cells: Vec<Option<&Cell>> = ways.iter().map(|way| matrix.cell(memory, *way, *first)).collect();
        if cells.iter().flatten().all(|cell| matches!(cell.outcome, Outcome::NotAvailable { .. })) {
            continue;
        }
        let text = |one: &Option<&Cell>| one.map_or("<td></td>".to_owned(), |one| cell(matrix, one, notes));
        let cells: String = cells.iter().map(text).collect();
        rows.push_str(&format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&memory.label())));
    }
    let body = if rows.is_empty() {
        "<p>None of this memory can have it.</p>\n".to_owned()
    } else {
        let caption = format!("{named}: what each kind of memory got, by the way in which its pages came about");
        wide(&caption, &format!("<th scope=\"col\">memory</th>{heads}"), &rows)
    };
    section(&named, &format!("size-{}", first.bytes()), &body)
}

/// A cell. Its colour and its words both show the outcome; the reason appears on hover.
fn cell(matrix: &Matrix, cell: &Cell, notes: &mut Notes) -> String {
    let colour = match &cell.outcome {
        Outcome::Large { leaf, .. } if *leaf >= cell.size => "color-mix(in srgb,var(--good) 30%,transparent)",
        Outcome::Large { .. } => "color-mix(in srgb,var(--good) 14%,transparent)",
        Outcome::FolioOnly { .. } => "color-mix(in srgb,var(--open) 18%,transparent)",
        _ => "transparent",
    };
    let reason = reason_of(&cell.outcome).map(|reason| format!(" title=\"{}\"", escape(&printable(&reason))));
    let words = escape(&short(matrix, cell, notes));
    format!("<td style=\"background:{colour};padding-left:.5rem\"{}>{words}</td>", reason.unwrap_or_default())
}

fn reasons(notes: &Notes) -> String {
    let lines: Vec<(String, String)> = notes.lettered().map(|(letter, reason)| (letter, printable(reason))).collect();
    if lines.is_empty() {
        return String::new();
    }
    list(&lines.iter().map(|(letter, reason)| (letter.as_str(), reason.clone())).collect::<Vec<_>>())
}

fn described(matrix: &Matrix) -> String {
    let ways = ways(matrix).into_iter().map(|way| (way.heading(), way.describe().to_owned()));
    list(&ways.chain(LEGEND.map(|(word, what)| (word, what.to_owned()))).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capabilities::json::parse;

    #[test]
    fn a_page_has_each_cell_with_its_reason() {
        let document = include_str!("../../../../docs/evidence/capabilities/x86-64-6.1.json");
        let matrix = parse(document).unwrap();
        let page = report(&matrix, (&["pagelab".to_owned(), "capabilities".to_owned()], "0.1"));
        assert!(page.contains("gave 2M in "), "{page}");
        let cells = page.matches("<td style").count();
        assert!(cells > 100, "{cells}");
        let refused = matrix.cells.iter().filter(|cell| matches!(cell.outcome, Outcome::Refused { .. })).count();
        assert!(page.matches(">no ").count() <= refused && page.matches(">no ").count() > 10, "{page}");
        assert!(page.contains("title=\"read before it was written"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
