//! Plain tables of text for the terminal.

use comfy_table::{ColumnConstraint, ContentArrangement, Table};

use crate::table::STYLE;
use crate::text::printable;

/// A table in lines of at most `width` columns; cells are folded, and control characters in them escaped.
pub fn plain<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>, width: usize) -> String {
    table(header, rows, width).trim_fmt()
}

/// The same, but only cells of the last column are folded: names and figures stay whole.
pub fn last_folded<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    width: usize,
) -> String {
    let mut table = table(header, rows, width);
    table.column_iter_mut().take(N - 1).for_each(|column| {
        column.set_constraint(ColumnConstraint::ContentWidth);
    });
    table.trim_fmt()
}

fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>, width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_folded_and_escaped() {
        let long = "a word ".repeat(40);
        let text = plain(["name", "what"], [["one".to_string(), long], ["\u{1b}[31m".into(), String::new()]], 60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() > 4);
    }
}
