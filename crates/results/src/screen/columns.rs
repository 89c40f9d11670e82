//! A table with one line per row, for terminals of any width.

use crate::emphasis::{Emphasis, Line, Span};
use crate::text::fold;

/// Possible numbers of spaces between two columns; the widest that fits is used.
const GAPS: [usize; 3] = [3, 2, 1];

/// A column of the table.
pub struct Column {
    pub title: String,
    pub is_right_aligned: bool,
    /// When the column is left out on a terminal that is too narrow: the columns with the highest number first; 0 means
    /// never.
    pub dispensable: u8,
    pub cells: Vec<Span>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| columns(&cell.text));
        cells.chain([columns(&self.title)]).max().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.text.is_empty())
    }
}

/// The table in lines of at most `width` columns, and the titles of the columns that were left out for lack of room. If the columns
/// that must stay do not fit either, each row is a paragraph.
pub fn lines(all: Vec<Column>, width: usize) -> (Vec<Line>, Vec<String>) {
    let all: Vec<Column> = all.into_iter().filter(|column| !column.is_empty()).collect();
    let most = all.iter().map(|column| column.dispensable).max().unwrap_or(0);
    for kept in (0..=most).rev() {
        let shown: Vec<&Column> = all.iter().filter(|column| column.dispensable <= kept).collect();
        let own: usize = shown.iter().map(|column| column.width()).sum();
        let fits = |gap: &usize| own + gap * shown.len().saturating_sub(1) <= width;
        if let Some(gap) = GAPS.into_iter().find(fits) {
            let left_out = all.iter().filter(|column| column.dispensable > kept);
            return (table(&shown, gap), left_out.map(|column| column.title.clone()).collect());
        }
    }
    (paragraphs(&all, width), Vec::new())
}

fn table(shown: &[&Column], gap: usize) -> Vec<Line> {
    let rows = shown.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let title = |column: &&Column| Span::new(column.title.clone(), Emphasis::Strong);
    let cell = |column: &&Column, at: usize| column.cells.get(at).cloned().unwrap_or_default();
    let row = |at: usize| line(shown, shown.iter().map(|column| cell(column, at)), gap);
    std::iter::once(line(shown, shown.iter().map(title), gap)).chain((0..rows).map(row)).collect()
}

/// One line of cells, without spaces at its end.
fn line(shown: &[&Column], cells: impl Iterator<Item = Span>, gap: usize) -> Line {
    let mut line: Line = Vec::new();
    let mut pending = 0;
    for (column, cell) in shown.iter().zip(cells) {
        let padding = column.width() - columns(&cell.text);
        let before = if column.is_right_aligned { padding } else { 0 };
        if !cell.text.is_empty() {
            line.extend((pending + before > 0).then(|| Span::plain(" ".repeat(pending + before))));
            line.push(cell.clone());
            pending = 0;
        }
        pending += gap + if cell.text.is_empty() { column.width() } else { padding - before };
    }
    line
}

/// `thp: best, 89.29 ms, -51.1 %, ...`: a paragraph per row. The last column follows the label, because it is the
/// answer.
fn paragraphs(all: &[Column], width: usize) -> Vec<Line> {
    let Some((labels, others)) = all.split_first() else { return Vec::new() };
    let (figures, answer) = others.split_at(others.len().saturating_sub(1));
    let cell = |column: &Column, at: usize| {
        let text = column.cells.get(at).map(|cell| cell.text.clone());
        text.filter(|text| !text.is_empty() && text != "-")
    };
    let paragraph = |(at, label): (usize, &Span)| {
        let cells: Vec<String> = answer.iter().chain(figures).filter_map(|column| cell(column, at)).collect();
        fold(&format!("{}: {}", label.text, cells.join(", ")), width, 4)
    };
    let text: Vec<String> = labels.cells.iter().enumerate().map(paragraph).collect();
    text.iter().flat_map(|text| text.lines()).map(|line| vec![Span::plain(line)]).collect()
}

fn columns(text: &str) -> usize {
    text.chars().count()
}
