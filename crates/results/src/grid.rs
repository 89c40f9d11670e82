//! Plain text tables for the terminal.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};

use crate::table::{MAX_CELL, STYLE};
use crate::text::{fold, printable};

/// Minimum width of a table whose cells are folded.
const MIN_FOLDED: usize = 60;
/// Minimum width of a table in which words of cells may be broken. Words of headings are never broken.
const MIN_BROKEN_WORDS: usize = 80;
/// Characters of padding per table column.
const PADDING: usize = 2;
/// Characters between two table columns.
const BETWEEN: usize = 1;

/// A table in lines of at most `width` characters. Cells are folded, and their control characters are escaped. A word that is
/// longer than a line is kept whole.
///
/// If the columns do not fit next to each other, each row becomes a paragraph: its first cell, followed by the other
/// cells with their headings.
pub fn plain<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>, width: usize) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    laid_out(&header, rows, width, |table, rows| keep_words(table, &header, rows, width))
}

/// Same as [`plain`], but folds only cells of the last column: names and figures stay whole.
pub fn last_folded<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    width: usize,
) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    laid_out(&header, rows, width, |table, _| {
        table.column_iter_mut().take(N - 1).for_each(|column| {
            column.set_constraint(ColumnConstraint::ContentWidth);
        });
    })
}

/// Same as [`last_folded`], but folds cells of the last two columns.
pub fn last_two_folded<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    width: usize,
) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    laid_out(&header, rows, width, |table, rows| {
        keep_words(table, &header, rows, width);
        table.column_iter_mut().take(N - 2).for_each(|column| {
            column.set_constraint(ColumnConstraint::ContentWidth);
        });
    })
}

/// Same as [`plain`], with the number of columns taken from the headings.
pub fn of_columns(header: &[String], rows: impl IntoIterator<Item = Vec<String>>, width: usize) -> String {
    let header: Vec<String> = header.iter().map(|title| printable(title)).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows = rows.into_iter().collect();
    laid_out(&header, rows, width, |table, rows| keep_words(table, &header, rows, width))
}

fn laid_out(
    header: &[&str],
    rows: Vec<Vec<String>>,
    width: usize,
    arrange: impl FnOnce(&mut Table, &[Vec<String>]),
) -> String {
    let printed = |row: Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(printed).collect();
    if rows.iter().flatten().any(|cell| cell.len() > MAX_CELL) {
        return paragraphs(header, &rows, width);
    }
    let mut table = table(header, &rows, width);
    arrange(&mut table, &rows);
    let text = table.trim_fmt();
    if is_readable(header, &rows, &text, width) { text } else { paragraphs(header, &rows, width) }
}

/// Whether a table is readable. Its lines must fit, and no word of a heading may be broken. On a medium terminal no word of a
/// cell may be broken, and on a narrow one no cell may be folded.
fn is_readable(header: &[&str], rows: &[Vec<String>], text: &str, width: usize) -> bool {
    let cells = || rows.iter().flatten();
    let headings: Vec<&str> = text.lines().take_while(|line| !line.starts_with('─')).collect();
    let is_whole = |word: &str| headings.iter().any(|line| line.contains(word));
    let has_whole_headings = header.iter().flat_map(|title| title.split_whitespace()).all(is_whole);
    let fits = text.lines().all(|line| line.chars().count() <= width);
    match width {
        MIN_BROKEN_WORDS.. => has_whole_headings && fits,
        MIN_FOLDED.. => {
            has_whole_headings
                && fits
                && cells().flat_map(|cell| cell.split_whitespace()).all(|word| text.contains(word))
        }
        _ => fits && cells().all(|cell| text.contains(cell.as_str())),
    }
}

fn paragraphs(header: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let titled = |(title, cell): (&&str, &String)| {
        let separator = if title.is_empty() { "" } else { ": " };
        (!cell.is_empty()).then(|| fold(&format!("  {title}{separator}{cell}"), width, 4))
    };
    let paragraph = |row: &Vec<String>| {
        let first = row.first().map(|cell| fold(cell, width, 4));
        let others = header.iter().zip(row).skip(1).filter_map(titled);
        first.into_iter().chain(others).collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

fn table(header: &[&str], rows: &[Vec<String>], width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).set_header(header);
    table.add_rows(rows);
    table
}

/// Makes columns wide enough for every word of headings and cells if such a table fits; otherwise wide enough for every word
/// of headings, if that fits.
fn keep_words(table: &mut Table, header: &[&str], rows: &[Vec<String>], width: usize) {
    let word_width = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0) + PADDING;
    let heading_widths: Vec<usize> = header.iter().map(|title| word_width(title)).collect();
    let cell_width = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| word_width(cell));
    let column_width =
        |(at, heading): (usize, &usize)| rows.iter().map(|row| cell_width(row, at)).fold(*heading, usize::max);
    let widths: Vec<usize> = heading_widths.iter().enumerate().map(column_width).collect();
    let fits = |widths: &&Vec<usize>| widths.iter().sum::<usize>() + BETWEEN * widths.len().saturating_sub(1) <= width;
    if let Some(widths) = [&widths, &heading_widths].into_iter().find(fits) {
        for (column, width) in table.column_iter_mut().zip(widths) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width as u16)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_has_paragraphs_with_whole_words() {
        let rows = || [["hugetlb-2m".into(), "available".into(), "anonymous mmap rewritten to MAP_HUGETLB".into()]];
        let header = ["policy", "here", "how"];
        let narrow = plain(header, rows(), 40);
        assert_eq!(narrow, "hugetlb-2m\n  here: available\n  how: anonymous mmap rewritten to\n    MAP_HUGETLB");
        for width in 40..=120 {
            let folded = [last_folded(header, rows(), width), last_two_folded(header, rows(), width)];
            for text in [plain(header, rows(), width)].into_iter().chain(folded) {
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
                for word in rows()[0].iter().flat_map(|cell| cell.split_whitespace()) {
                    assert!(text.contains(word), "{width}: {word} in\n{text}");
                }
            }
        }
        assert!(plain(header, rows(), 80).contains("──"));
        assert!(plain(["a", "b"], [["1".into(), "2".into()]], 40).contains("──"), "what fits is a table");
        let columns = of_columns(&header.map(String::from), rows().map(Vec::from), 40);
        assert_eq!(columns, narrow, "however many columns there are");
    }

    #[test]
    fn words_of_headings_stay_whole() {
        let policies = ["direct-map-1g", "direct-map-2m", "direct-map-4k"];
        let header = policies.iter().flat_map(|policy| [format!("{policy}, published"), format!("{policy}, here")]);
        let header: Vec<String> = std::iter::once("workload".to_owned()).chain(header).collect();
        let row = std::iter::once("all workloads".to_owned()).chain(std::iter::repeat_n("best in 45%".to_owned(), 6));
        let row: Vec<String> = row.collect();
        for width in [60, 80, 100, 107, 120, 160] {
            let text = of_columns(&header, [row.clone()], width);
            let lines = || text.lines().flat_map(|line| line.split_whitespace());
            assert_eq!(lines().filter(|word| word.starts_with("direct-map-1g,")).count(), 2, "{width}: {text}");
            assert_eq!(text.contains("──"), width >= 120, "{width}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn cells_are_folded_and_escaped() {
        let long = "a word ".repeat(40);
        let text = plain(["name", "what"], [["one".to_string(), long], ["\u{1b}[31m".into(), String::new()]], 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() > 4);
    }

    #[test]
    fn a_cell_too_large_for_a_table_is_in_a_paragraph() {
        let row = || [["one".to_string(), "x".repeat(MAX_CELL + 1)]];
        for text in [plain(["name", "what"], row(), 100), last_folded(["name", "what"], row(), 100)] {
            assert_eq!(text, format!("one\n  what:\n    {}", "x".repeat(MAX_CELL + 1)));
        }
    }
}
