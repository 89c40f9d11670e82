//! A figure over two axes as shaded cells: an SVG picture, an HTML page, and lines for the terminal.
//!
//! Shades carry no information of their own: every cell also has text, and the picture explains it on hover.

use crate::text::{escape, printable};

/// A cell: its shade, its text and an explanation.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The shade, from 0 (empty) to 1 (full).
    pub share: f64,
    /// Text of a few characters.
    pub text: String,
    /// A sentence shown on hover.
    pub hover: String,
}

/// A table of cells. A cell that is `None` is not drawn.
#[derive(Clone, Debug)]
pub struct Shading {
    /// The title, in one line.
    pub title: String,
    /// What the rows are, for the heading of the axis.
    pub rows_are: String,
    /// What the columns are, for the heading of the axis.
    pub columns_are: String,
    /// What the shade measures, as in "free windows".
    pub shade_is: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Names of the rows with their cells, one per column.
    pub rows: Vec<(String, Vec<Option<Cell>>)>,
}

/// Shades for the terminal from empty to full, each with the smallest share that it represents.
const SHADES: [(char, f64); 5] = [(' ', 0.0), ('░', f64::MIN_POSITIVE), ('▒', 0.5), ('▓', 0.75), ('█', 0.95)];

const CELL: (f64, f64) = (82.0, 40.0);
const LEFT: f64 = 86.0;
const TOP: f64 = 78.0;
const MARGIN: f64 = 16.0;

const STYLE: &str = "svg.shading { --paper: #fff; --ink: #1b1f24; --soft: #59636e; --low: #f1ead8; --high: #0b5cad; \
    font: 13px system-ui, \"Noto Sans\", \"Liberation Sans\", sans-serif } \
    @media (prefers-color-scheme: dark) { svg.shading { --paper: #14171b; --ink: #e4e8ec; --soft: #9ba6b2; \
    --low: #2b2a25; --high: #4c9edb } } \
    .shading .paper { fill: var(--paper) } .shading text { fill: var(--ink); font-variant-numeric: tabular-nums } \
    .shading .soft { fill: var(--soft) } .shading .title { font-weight: 600; font-size: 15px } \
    .shading .cell { stroke: var(--paper); stroke-width: 2 } .shading .on { fill: var(--paper) }";

/// Lines for the terminal, of at most `width` columns if the cells fit.
pub fn text(shading: &Shading, width: usize) -> String {
    let names = shading.rows.iter().map(|(name, _)| name).chain([&shading.rows_are]);
    let left = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let texts = shading.rows.iter().flat_map(|(_, cells)| cells.iter().flatten().map(|cell| &cell.text));
    let cell = texts.chain(&shading.columns).map(|text| text.chars().count()).max().unwrap_or(0) + 1;
    let fit = (width.saturating_sub(left) / (cell + 2)).max(1);
    let parts: Vec<usize> = (0..shading.columns.len()).step_by(fit).collect();
    let part = |first: &usize| text_part(shading, *first..(*first + fit).min(shading.columns.len()), left, cell);
    let legend = "shade: none   ░ some   ▒ from 50%   ▓ from 75%   █ from 95%";
    format!(
        "{}\n\n{}\n{legend}: {}",
        printable(&shading.title),
        parts.iter().map(part).collect::<Vec<_>>().join("\n"),
        printable(&shading.shade_is)
    )
}

fn text_part(shading: &Shading, columns: std::ops::Range<usize>, left: usize, width: usize) -> String {
    let names: String = shading.columns[columns.clone()].iter().map(|name| format!("  {name:<width$}")).collect();
    let mut text = format!("{:<left$}  {}\n", "", printable(&shading.columns_are));
    text.push_str(format!("{:<left$}{names}", printable(&shading.rows_are)).trim_end());
    text.push('\n');
    for (name, cells) in &shading.rows {
        let cell = |cell: &Option<Cell>| match cell {
            Some(cell) => format!("  {}{:<rest$}", shade(cell.share), printable(&cell.text), rest = width - 1),
            None => format!("  {:<width$}", " -"),
        };
        let line: String = cells.iter().skip(columns.start).take(columns.len()).map(cell).collect();
        text.push_str(format!("{:<left$}{line}", printable(name)).trim_end());
        text.push('\n');
    }
    text
}

fn shade(share: f64) -> char {
    SHADES.iter().rev().find(|(_, least)| share >= *least).map_or(' ', |(shade, _)| *shade)
}

/// The picture as one SVG file that follows the reader's colour scheme, light or dark.
pub fn svg(shading: &Shading) -> String {
    let width = LEFT + CELL.0 * shading.columns.len() as f64 + MARGIN;
    let height = TOP + CELL.1 * shading.rows.len() as f64 + 66.0;
    let mut body = text_element("title", (MARGIN, 26.0), "start", &shading.title);
    body += &text_element("soft", (LEFT, 50.0), "start", &shading.columns_are);
    body += &text_element("soft", (LEFT - 10.0, TOP - 8.0), "end", &shading.rows_are);
    for (at, name) in shading.columns.iter().enumerate() {
        body += &text_element("", (LEFT + CELL.0 * (at as f64 + 0.5), TOP - 8.0), "middle", name);
    }
    for (at, (name, cells)) in shading.rows.iter().enumerate() {
        let y = TOP + CELL.1 * at as f64;
        body += &text_element("", (LEFT - 10.0, y + CELL.1 / 2.0 + 4.5), "end", name);
        for (column, cell) in cells.iter().enumerate().filter_map(|(column, cell)| Some((column, cell.as_ref()?))) {
            body += &cell_element(cell, (LEFT + CELL.0 * column as f64, y));
        }
    }
    body += &legend(shading, height - 44.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"shading\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        escape(&printable(&shading.title))
    )
}

/// A page that contains the picture.
pub fn html(shading: &Shading) -> String {
    let title = escape(&printable(&shading.title));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>pagelab: {title}</title>\n</head>\n<body>\n{}</body>\n</html>\n",
        svg(shading)
    )
}

fn text_element(class: &str, at: (f64, f64), anchor: &str, text: &str) -> String {
    let text = escape(&printable(text));
    format!("<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>\n", at.0, at.1)
}

fn cell_element(cell: &Cell, (x, y): (f64, f64)) -> String {
    let class = if cell.share > 0.6 { "on" } else { "" };
    let text = text_element(class, (x + CELL.0 / 2.0, y + CELL.1 / 2.0 + 4.5), "middle", &cell.text);
    format!("<g><title>{}</title>{}{text}</g>\n", escape(&printable(&cell.hover)), box_of(cell.share, (x, y), CELL))
}

fn box_of(share: f64, (x, y): (f64, f64), (width, height): (f64, f64)) -> String {
    let percent = (share.clamp(0.0, 1.0) * 100.0).round();
    format!(
        "<rect class=\"cell\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         style=\"fill: color-mix(in srgb, var(--high) {percent}%, var(--low))\"/>"
    )
}

fn legend(shading: &Shading, y: f64) -> String {
    const SHARES: [f64; 6] = [0.0, 0.5, 0.75, 0.875, 0.9375, 1.0];
    let mut legend = text_element("soft", (LEFT, y), "start", &shading.shade_is);
    for (at, share) in SHARES.into_iter().enumerate() {
        let x = LEFT + 74.0 * at as f64;
        legend += &box_of(share, (x, y + 9.0), (20.0, 16.0));
        let percent = format!("{}%", (share * 1000.0).round() / 10.0);
        legend += &text_element("soft", (x + 24.0, y + 22.0), "start", &percent);
    }
    legend
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Shading {
        let cell = |share: f64, text: &str| Some(Cell { share, text: text.into(), hover: format!("<{text}>") });
        Shading {
            title: "a & b".into(),
            rows_are: "size".into(),
            columns_are: "vCPUs".into(),
            shade_is: "free".into(),
            columns: vec!["1".into(), "2".into()],
            rows: vec![
                ("1G".into(), vec![cell(0.998, "1x1G"), cell(0.5, "2x\u{1b}M")]),
                ("2G".into(), vec![cell(0.0, "0"), None]),
            ],
        }
    }

    #[test]
    fn lines_are_shaded_and_fit() {
        let lines = text(&sample(), 80);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], "a & b");
        assert!(lines[4].starts_with("1G") && lines[4].contains("█1x1G") && lines[4].contains("▒2x\\x1b"), "{lines:?}");
        assert!(lines[5].contains(" 0") && lines[5].trim_end().ends_with('-'), "{lines:?}");
        let narrow = text(&sample(), 16);
        assert_eq!(narrow.matches("vCPUs").count(), 2, "columns that do not fit follow below: {narrow}");
    }

    #[test]
    fn the_picture_has_every_cell_and_escapes_what_it_shows() {
        let svg = svg(&sample());
        assert_eq!(svg.matches("<g>").count(), 3, "an absent cell is none");
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;0&gt;") && !svg.contains('\u{1b}'));
        assert!(svg.contains("var(--high) 50%") && svg.contains("class=\"on\""));
        assert!(html(&sample()).contains("<title>pagelab: a &amp; b</title>") && !html(&sample()).contains("<script"));
    }
}
