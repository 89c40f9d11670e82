//! Draws a frame of `top` as cells of a given size ([`frame`]). This module does not depend on a terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::browse::{Browse, Page, Shown};
use super::columns::{Layout, Tone};
use super::header::header;
use super::view::{InspectionState, Row, View};
use crate::short::fitted;

/// The largest frame, in columns and lines. It is larger than any real screen, and smaller than the 65535 that a
/// terminal may report.
pub const MAX_WIDTH: u16 = 1000;
pub const MAX_HEIGHT: u16 = 500;

/// The header gets at most 1/N of the lines.
const HEADER_SHARE: usize = 4;

/// Lines about the selected process.
const DETAIL_LINES: usize = 2;

/// The display capabilities of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct TerminalStyle {
    /// Whether colours are allowed (`NO_COLOR` is unset).
    pub colours: bool,
    /// Whether the locale has more characters than ASCII.
    pub unicode: bool,
}

/// A frame, and the part of the table or the text that it shows.
pub struct Frame {
    /// The cells of the frame.
    pub cells: Buffer,
    /// The number of lines shown, and the total.
    pub shown: Shown,
}

/// Draws a frame.
pub fn frame(view: &View, browse: &Browse, style_options: TerminalStyle, width: u16, height: u16) -> Frame {
    let mut drawing = Drawing { cells: Buffer::empty(Rect::new(0, 0, width, height)), style_options, y: 0 };
    let shown = match &browse.page {
        Page::Processes => drawing.processes(view, browse),
        Page::Text { title, lines, first } => drawing.text(title, lines, *first),
    };
    Frame { cells: drawing.cells, shown }
}

/// The header and the table as text, with at most `most` processes. The header gets at most a quarter of `height` lines; all of it
/// is printed if the height of the terminal is not known.
pub fn full_text(view: &View, browse: &Browse, width: u16, height: Option<usize>, most: usize) -> String {
    let mut rows = browse.visible_rows(view);
    rows.truncate(most);
    let width = width.min(MAX_WIDTH);
    let room = height.map_or(usize::MAX, |height| (height / HEADER_SHARE).saturating_sub(1));
    let header = header(view, usize::from(width), room);
    let lines = u16::try_from(header.len() + rows.len() + 2).unwrap_or(u16::MAX);
    let style_options = TerminalStyle { colours: false, unicode: true };
    let mut drawing = Drawing { cells: Buffer::empty(Rect::new(0, 0, width, lines)), style_options, y: 0 };
    header.iter().for_each(|line| drawing.line(&line.text, Style::new()));
    drawing.y += 1;
    let layout = Layout::of(usize::from(width), &view.system.page_sizes, &view.rows);
    drawing.table(view, browse, &layout, &rows, None);
    text_of(&drawing.cells)
}

/// The cells as lines, without trailing spaces.
pub fn text_of(cells: &Buffer) -> String {
    let lines = cells.content.chunks(usize::from(cells.area.width).max(1));
    let line = |cells: &[ratatui::buffer::Cell]| {
        // A character of two columns is followed by an empty cell.
        let mut text = String::new();
        let mut is_covered = false;
        for cell in cells {
            if !is_covered {
                text.push_str(cell.symbol());
            }
            is_covered = !is_covered && Span::raw(cell.symbol()).width() > 1;
        }
        text.trim_end().to_string()
    };
    lines.map(line).collect::<Vec<_>>().join("\n").trim_end().to_string()
}

struct Drawing {
    cells: Buffer,
    style_options: TerminalStyle,
    y: u16,
}

impl Drawing {
    fn width(&self) -> usize {
        usize::from(self.cells.area.width)
    }

    fn left(&self) -> usize {
        usize::from(self.cells.area.height.saturating_sub(self.y))
    }

    /// Writes at a column of the current line; truncates what does not fit.
    fn write(&mut self, column: usize, text: &str, style: Style) {
        let Ok(x) = u16::try_from(column) else { return };
        if self.left() == 0 || x >= self.cells.area.width {
            return;
        }
        let text = if self.style_options.unicode { text.into() } else { results::ascii(text) };
        let style = if self.style_options.colours { style } else { Style { fg: None, bg: None, ..style } };
        let most = self.width() - column;
        self.cells.set_stringn(x, self.y, text, most, style);
    }

    fn line(&mut self, text: &str, style: Style) {
        self.write(0, text, style);
        self.y = self.y.saturating_add(1);
    }

    /// Draws the header, the table, and at the bottom the selected process and the keys.
    fn processes(&mut self, view: &View, browse: &Browse) -> Shown {
        let height = self.left();
        let bottom = usize::from(height >= 4);
        let layout = Layout::of(self.width(), &view.system.page_sizes, &view.rows);
        let detail = if height >= 12 { DETAIL_LINES } else { 0 };
        let room = (height / HEADER_SHARE).saturating_sub(bottom);
        if height >= 3 {
            for line in header(view, self.width(), room.max(1)) {
                let notice = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
                self.line(&line.text, if line.is_notice { notice } else { Style::new() });
            }
        }
        let lines = self.left().saturating_sub(1 + bottom + detail);
        let rows = browse.visible_rows(view);
        let selected = browse.selected(view);
        let at = rows.iter().position(|row| Some(row.pid) == selected).unwrap_or(0);
        let first = at.saturating_sub(lines.saturating_sub(1));
        let visible = &rows[first..rows.len().min(first + lines)];
        self.table(view, browse, &layout, visible, selected);
        self.y = (height - bottom - detail) as u16;
        if detail > 0 {
            let row = rows.iter().find(|row| Some(row.pid) == selected);
            self.detail(row.copied());
        }
        self.y = (height - bottom) as u16;
        if bottom > 0 {
            self.bottom(browse, rows.len(), view.rows.len());
        }
        Shown { page: lines, lines: rows.len() }
    }

    fn table(&mut self, view: &View, browse: &Browse, layout: &Layout, rows: &[&Row], selected: Option<u32>) {
        let page_sizes = &view.system.page_sizes;
        let mut x = 0;
        for (column, width) in &layout.0 {
            let style = Style::new().add_modifier(Modifier::BOLD);
            let style = if column.is_of(browse.sort) { style.add_modifier(Modifier::UNDERLINED) } else { style };
            self.write(x, &column.fitted(&column.heading(page_sizes), *width), style);
            x += width + 1;
        }
        self.y = self.y.saturating_add(1);
        for row in rows {
            let is_selected = selected == Some(row.pid);
            if is_selected {
                self.write(0, &" ".repeat(self.width()), Style::new().add_modifier(Modifier::REVERSED));
            }
            let mut x = 0;
            for (column, width) in &layout.0 {
                let (text, tone) = column.cell(row, page_sizes);
                let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { style_of(tone) };
                self.write(x, &column.fitted(&text, *width), style);
                x += width + 1;
            }
            self.y = self.y.saturating_add(1);
        }
    }

    /// Draws, in two lines, all known causes why the selected process has no larger leaves.
    fn detail(&mut self, row: Option<&Row>) {
        let Some(row) = row else { return };
        let why = match &row.inspection {
            InspectionState::Pending => "not looked at yet".to_string(),
            InspectionState::Failed(why) => why.clone(),
            InspectionState::Done(seen) => {
                let sizes = seen.sizes.describe();
                let age =
                    if seen.is_old { format!(" ({} ago)", crate::short::seconds(seen.age_s)) } else { String::new() };
                let cause = seen.cause.as_ref().map(|cause| format!("; {cause}")).unwrap_or_default();
                format!("{sizes}{age}{cause}")
            }
        };
        let text = results::printable(&format!("{} {}: {why}", row.pid, row.name));
        let soft = style_of(Tone::Soft);
        let wrapped = wrapped(&text, self.width(), 2);
        let is_cut = wrapped.len() > DETAIL_LINES;
        for (at, line) in wrapped.iter().take(DETAIL_LINES).enumerate() {
            let line = if is_cut && at + 1 == DETAIL_LINES { format!("{line} ...") } else { line.clone() };
            self.line(&fitted(&line, self.width(), false), soft);
        }
    }

    fn bottom(&mut self, browse: &Browse, chosen: usize, all: usize) {
        let filter = results::printable(&browse.filter);
        let text = match (browse.is_typing, browse.filter.is_empty()) {
            (true, _) => format!("filter: {filter}_   Enter keeps it, Esc clears it"),
            (false, false) => format!("{chosen} of {all} with \"{filter}\"   Esc clears it   q end"),
            (false, true) => "q end  Enter inspect  s sort  / filter  ? help".to_string(),
        };
        self.line(&fitted(&text, self.width(), false), style_of(Tone::Soft));
    }

    /// Draws a text with its title, and at the bottom the position within the text. Long lines are wrapped.
    fn text(&mut self, title: &str, lines: &[String], first: usize) -> Shown {
        let (height, width) = (self.left(), self.width());
        let around = if height >= 4 { 2 } else { 0 };
        let page = height - around;
        if around > 0 {
            self.line(&fitted(title, width, false), Style::new().add_modifier(Modifier::BOLD));
        }
        let wrapped: Vec<String> = lines.iter().flat_map(|line| wrapped(line, width, 4)).collect();
        let first = first.min(wrapped.len().saturating_sub(page));
        wrapped.iter().skip(first).take(page).for_each(|line| self.line(line, Style::new()));
        if around > 0 {
            self.y = (height - 1) as u16;
            let last = (first + page).min(wrapped.len());
            let text = format!("lines {} to {last} of {}   Esc back", (first + 1).min(last), wrapped.len());
            self.line(&text, style_of(Tone::Soft));
        }
        Shown { page, lines: wrapped.len() }
    }
}

/// Wraps a line at spaces, and splits words that are longer than a line.
fn wrapped(line: &str, width: usize, indent: usize) -> Vec<String> {
    let line = line.trim_end();
    if line.chars().count() <= width {
        return vec![line.to_string()];
    }
    let cut = |line: &str| -> Vec<String> {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(width.max(1)).map(|part| part.iter().collect()).collect()
    };
    results::fold(line, width, indent).lines().flat_map(cut).collect()
}

fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Soft => Style::new().add_modifier(Modifier::DIM),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Attention => Style::new().fg(Color::Yellow),
    }
}

#[cfg(test)]
mod tests;
