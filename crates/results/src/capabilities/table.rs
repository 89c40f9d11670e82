//! The matrix of capabilities as text: a table for each size, or for several sizes whose cells are equal.

use policy::capability::{Contiguous, Matrix, Memory, Outcome, SettingsMode, Way};
use policy::size::PageSize;

use super::notes::{Notes, short};
use crate::grid::of_columns;
use crate::{fold, printable};

/// The tables and their notes, in lines of at most `width` characters.
pub fn text(matrix: &Matrix, width: usize) -> String {
    let mut notes = Notes::default();
    let mut parts = vec![fold(&heading(matrix), width, 0)];
    for (sizes, rows) in grouped(matrix, &mut notes) {
        let titled: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
        if rows.is_empty() {
            parts.push(fold(&format!("{}: none of this memory can have it", titled.join(", ")), width, 0));
            continue;
        }
        parts.push(format!("{}\n{}", fold(&titled.join(", "), width, 0), columns(&headings(matrix), rows, width)));
    }
    let in_use = ways(matrix).into_iter();
    let described = in_use.map(|way| fold(&format!("{:6} {}", way.heading(), way.describe()), width, 7));
    parts.push(described.collect::<Vec<_>>().join("\n"));
    let legend = LEGEND.iter().map(|(word, what)| fold(&format!("{word:6} {what}"), width, 7));
    parts.push(legend.collect::<Vec<_>>().join("\n"));
    let notes: Vec<String> =
        notes.lettered().map(|(letter, reason)| fold(&format!("{letter}  {reason}"), width, 4)).collect();
    parts.push(notes.join("\n"));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The words of cells, each with its meaning.
pub const LEGEND: [(&str, &str); 7] = [
    ("leaf", "a leaf of the size maps it; 2M: a larger one, of that size"),
    ("folio", "folios of the size, whole and aligned, mapped by base-page leaves; f2M: larger ones, of that size"),
    ("part", "folios of the size, mapped by smaller leaves, in part or out of place"),
    ("no", "smaller pages, for the reason of that letter"),
    ("-", "not available"),
    ("?", "tried or skipped, and not known"),
    ("*", "depends on free memory: an allocation of the size failed twice"),
];

pub fn heading(matrix: &Matrix) -> String {
    let settings = match matrix.settings {
        SettingsMode::Open => "each size was tried with only that size enabled, and with advised memory",
        SettingsMode::Found => "settings as found",
    };
    let contiguous = match matrix.contiguous {
        Contiguous::NotInThisArchitecture => "this architecture has no contiguous bit or NAPOT",
        Contiguous::NotSeen => "contiguous bit and NAPOT: visible only in page tables, which are not read",
    };
    let folios = if matrix.sees_folios { "" } else { "; folios are not visible without root" };
    let kernel = printable(&matrix.kernel);
    format!("Linux {kernel}, {}; {settings}; {contiguous}{folios}", printable(&matrix.architecture))
}

/// The table, with two spaces between columns, or one if the table is too wide otherwise: nine columns must fit into a mail. On a
/// narrower terminal each row is a paragraph.
fn columns(headings: &[String], rows: Vec<Vec<String>>, width: usize) -> String {
    let lines = || std::iter::once(headings).chain(rows.iter().map(Vec::as_slice));
    let column_width = |at: usize| lines().filter_map(|line| line.get(at)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..headings.len()).map(column_width).collect();
    let fits = |gap: &usize| widths.iter().map(|width| width + gap).sum::<usize>() <= width + gap;
    let Some(gap) = [2, 1].into_iter().find(fits) else { return of_columns(headings, rows, width) };
    let text = |line: &[String]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join(&" ".repeat(gap)).trim_end().to_owned()
    };
    lines().map(text).collect::<Vec<_>>().join("\n")
}

fn headings(matrix: &Matrix) -> Vec<String> {
    let first = std::iter::once("memory".to_owned());
    first.chain(ways(matrix).into_iter().map(|way| way.heading().to_owned())).collect()
}

pub fn ways(matrix: &Matrix) -> Vec<Way> {
    Way::ALL.into_iter().filter(|way| matrix.cells.iter().any(|cell| cell.way == *way)).collect()
}

/// The rows of each size. Consecutive sizes with equal rows are combined.
pub fn grouped(matrix: &Matrix, notes: &mut Notes) -> Vec<(Vec<PageSize>, Vec<Vec<String>>)> {
    let mut groups: Vec<(Vec<PageSize>, Vec<Vec<String>>)> = Vec::new();
    for size in matrix.sizes() {
        let rows = rows(matrix, size, notes);
        match groups.last_mut() {
            Some((sizes, known)) if *known == rows => sizes.push(size),
            _ => groups.push((vec![size], rows)),
        }
    }
    groups
}

/// The rows of one size, without kinds of memory that cannot have this size in any way.
fn rows(matrix: &Matrix, size: PageSize, notes: &mut Notes) -> Vec<Vec<String>> {
    let ways = ways(matrix);
    let is_available = |memory: &&Memory| {
        let of_memory = |way: &Way| matrix.cell(memory, *way, size);
        ways.iter().filter_map(of_memory).any(|cell| !matches!(cell.outcome, Outcome::NotAvailable { .. }))
    };
    let row = |memory: &Memory| {
        let cells = ways.iter().map(|way| matrix.cell(memory, *way, size));
        let texts = cells.map(|cell| cell.map(|cell| short(matrix, cell, notes)).unwrap_or_default());
        std::iter::once(memory.label()).chain(texts).collect()
    };
    matrix.rows(size).into_iter().filter(is_available).map(row).collect()
}
