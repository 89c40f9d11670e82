//! Plain tables of text for the terminal.

use comfy_table::{ContentArrangement, Table};

use crate::table::STYLE;
use crate::text::printable;

/// A table in lines of at most `width` columns; cells are folded, and control characters in them escaped.
pub fn plain<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>, width: usize) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX)).set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| printable(&cell)));
    }
    table.trim_fmt()
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
