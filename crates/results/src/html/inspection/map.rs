//! The map of a region as a picture: rows of cells, coloured by what maps them, with markers for cuts.

use policy::inspect::{Cut, Region};
use policy::size::format_bytes;

use super::strip::{CellBytes, Part, Scale, Why};
use crate::html::svg::{Anchor, Figure, WIDTH};

/// Cells per row.
const COLUMNS: usize = 64;
const CELL: (f64, f64) = (8.5, 17.0);
const LEFT: f64 = 8.0;
const TOP: f64 = 10.0;
/// Vertical distance of rows. Cuts and the numbers of causes are drawn in the space above a row.
const ROW: f64 = 28.0;

/// The kinds of memory in the map: the class in the style sheet, a pattern so that colour is not the only difference,
/// and a description.
pub const CLASSES: [(&str, Option<&str>, &str); 4] = [
    ("s4", None, "leaves of PMD size or more"),
    ("s2", Some("lined"), "folios larger than a base page, mapped whole by base-page entries"),
    ("s0", None, "base pages, or folios that were not seen"),
    ("other", Some("dotted"), "zero pages"),
];

/// Bytes of a cell, in the order of [`CLASSES`].
pub fn by_class(cell_bytes: &CellBytes) -> [u64; 4] {
    [cell_bytes.leaf_bytes, cell_bytes.folio_bytes, cell_bytes.base_bytes, cell_bytes.zero_bytes]
}

/// Position in the picture: row and column.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    column: usize,
}

impl Place {
    fn at(self) -> (f64, f64) {
        (LEFT + CELL.0 * self.column as f64, TOP + ROW * self.row as f64)
    }
}

/// A part with its position. An empty stretch takes the width of one cell.
struct Placed<'a> {
    part: &'a Part,
    place: Place,
}

/// The picture of a region. `parts` must have been made with the same `scale`.
pub fn picture(region: &Region, parts: &[Part], scale: Scale, id: &str) -> String {
    let placed: Vec<Placed> = parts
        .iter()
        .enumerate()
        .map(|(at, part)| Placed { part, place: Place { row: at / COLUMNS, column: at % COLUMNS } })
        .collect();
    let rows = placed.last().map_or(0, |last| last.place.row + 1);
    let title = format!("{:x}-{:x}, {}", region.start, region.end, region.kind.describe());
    let mut figure = Figure::new(id, &title, &described(region, parts, scale), TOP + ROW * rows as f64);
    let mut at = 0;
    while at < placed.len() {
        at += draw(&mut figure, region, &placed[at..], scale);
    }
    draw_causes(&mut figure, &placed);
    cuts(&mut figure, region, &placed);
    figure.finish()
}

/// Draws the first part, together with those following parts of the same row that look alike; returns how many were
/// drawn.
fn draw(figure: &mut Figure, region: &Region, placed: &[Placed], scale: Scale) -> usize {
    let first = &placed[0];
    let Part::Cell { start, end, cell_bytes } = first.part else {
        empty(figure, first);
        return 1;
    };
    let Some(class) = pure(*cell_bytes, end - start) else {
        mixed(figure, region, first, *cell_bytes, scale);
        return 1;
    };
    let same = |one: &&Placed| match one.part {
        Part::Cell { start, end, cell_bytes: other } => {
            one.place.row == first.place.row && pure(*other, end - start) == Some(class) && other.why == cell_bytes.why
        }
        Part::Empty { .. } => false,
    };
    let alike = placed.iter().take_while(same).count();
    let to = match placed[alike - 1].part {
        Part::Cell { end, .. } | Part::Empty { end, .. } => *end,
    };
    let what = class.map_or("nothing present", |class| CLASSES[class].2);
    let hover = format!("{start:x}-{to:x}, {}: {what}{}", format_bytes(to - start), because(*cell_bytes, region));
    let size = (CELL.0 * alike as f64, CELL.1);
    fill(figure, class, first.place.at(), size, &hover);
    // Edges between the cells.
    for column in 1..alike {
        let x = first.place.at().0 + CELL.0 * column as f64;
        figure.line("edge", (x, first.place.at().1), (x, first.place.at().1 + CELL.1));
    }
    alike
}

/// The only class of memory in a cell; `Some(None)` for a cell without memory; `None` for a cell with several classes.
fn pure(cell_bytes: CellBytes, length_bytes: u64) -> Option<Option<usize>> {
    if cell_bytes.present_bytes() == 0 {
        return Some(None);
    }
    by_class(&cell_bytes).iter().position(|bytes| *bytes == length_bytes).map(Some)
}

fn fill(figure: &mut Figure, class: Option<usize>, at: (f64, f64), size: (f64, f64), hover: &str) {
    let Some(class) = class else { return figure.rectangle("bar absent", at, size, hover) };
    let (colour, pattern, _) = CLASSES[class];
    figure.rectangle(&format!("bar {colour}"), at, size, hover);
    if let Some(pattern) = pattern {
        figure.rectangle(&format!("pattern {pattern}"), at, size, "");
    }
}

/// Draws a cell with several kinds of memory side by side, in proportion to their bytes. The share without memory stays
/// empty.
fn mixed(figure: &mut Figure, region: &Region, placed: &Placed, cell_bytes: CellBytes, scale: Scale) {
    let Part::Cell { start, end, .. } = placed.part else { return };
    let length_bytes = (end - start).max(1);
    let held = in_words(&cell_bytes, length_bytes);
    let hover = format!("{start:x}-{end:x}, {}: {held}{}", format_bytes(length_bytes), because(cell_bytes, region));
    let (x, y) = placed.place.at();
    let width = CELL.0 * (length_bytes as f64 / scale.bytes() as f64).clamp(0.25, 1.0);
    fill(figure, None, (x, y), (width, CELL.1), &hover);
    let mut from = x;
    for (class, bytes) in by_class(&cell_bytes).into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
        // Every kind gets at least the width at which it is visible.
        let wide = (width * bytes as f64 / length_bytes as f64).max(1.2).min(x + width - from);
        fill(figure, Some(class), (from, y), (wide, CELL.1), &hover);
        from += wide;
    }
}

fn empty(figure: &mut Figure, placed: &Placed) {
    let Part::Empty { start, end } = placed.part else { return };
    let hover = format!("{start:x}-{end:x}, {}: nothing present, drawn as one cell", format_bytes(end - start));
    let (x, y) = placed.place.at();
    figure.rectangle("discarded", (x, y), CELL, &hover);
}

/// Draws the numbers of causes, each above the first of the cells with that cause.
fn draw_causes(figure: &mut Figure, placed: &[Placed]) {
    let mut before = (usize::MAX, Why::None);
    for one in placed {
        let why = match one.part {
            Part::Cell { cell_bytes, .. } => cell_bytes.why,
            Part::Empty { .. } => Why::None,
        };
        if let Some(mark) = why.mark().filter(|_| before != (one.place.row, why)) {
            let (x, y) = one.place.at();
            figure.text("why", (x + CELL.0 / 2.0, y - 1.5), Anchor::Middle, &mark);
        }
        before = (one.place.row, why);
    }
}

/// Why the memory of a cell is not mapped larger, as the end of a sentence; empty if unknown.
pub fn because(cell_bytes: CellBytes, region: &Region) -> String {
    cell_bytes.why.describe(region).map_or(String::new(), |why| format!("; not larger: {why}"))
}

/// The content of a cell in words.
pub fn in_words(cell_bytes: &CellBytes, length_bytes: u64) -> String {
    let classes = by_class(cell_bytes).into_iter().zip(CLASSES).filter(|(bytes, _)| *bytes > 0);
    let present = classes.map(|(bytes, (_, _, what))| format!("{} {what}", format_bytes(bytes)));
    let absent = length_bytes.saturating_sub(cell_bytes.present_bytes());
    let absent = (absent > 0).then(|| format!("{} absent", format_bytes(absent)));
    present.chain(absent).collect::<Vec<_>>().join(", ")
}

/// Draws a mark above each cell that contains a cut (a VMA boundary or a guard page inside one allocation).
fn cuts(figure: &mut Figure, region: &Region, placed: &[Placed]) {
    let mut last: Option<(usize, Vec<&Cut>)> = None;
    for cut in &region.cuts {
        let Some(at) = placed.iter().position(|one| holds(one.part, cut.start)) else { continue };
        match &mut last {
            Some((place, cuts)) if *place == at => cuts.push(cut),
            _ => {
                if let Some((place, cuts)) = last.replace((at, vec![cut])) {
                    mark(figure, &placed[place], &cuts);
                }
            }
        }
    }
    if let Some((place, cuts)) = last {
        mark(figure, &placed[place], &cuts);
    }
}

fn holds(part: &Part, address: u64) -> bool {
    let (Part::Cell { start, end, .. } | Part::Empty { start, end }) = part;
    (*start..*end).contains(&address)
}

fn mark(figure: &mut Figure, placed: &Placed, cuts: &[&Cut]) {
    let described = |cut: &&Cut| format!("{} at {:x}", cut.by.describe(), cut.start);
    let hover = cuts.iter().map(described).collect::<Vec<_>>().join(", ");
    let (x, y) = placed.place.at();
    let (Part::Cell { start, end, .. } | Part::Empty { start, end }) = placed.part;
    let within = (cuts[0].start - start) as f64 / (end - start).max(1) as f64;
    figure.rectangle("cut", (x + (CELL.0 - 1.6) * within, y - 4.0), (1.6, CELL.1 + 4.0), &hover);
}

/// The description for screen readers: totals, and where the table with all details is.
fn described(region: &Region, parts: &[Part], scale: Scale) -> String {
    let mut all = CellBytes::default();
    let mut cells = 0;
    for part in parts {
        if let Part::Cell { cell_bytes, .. } = part {
            cells += 1;
            all.leaf_bytes += cell_bytes.leaf_bytes;
            all.folio_bytes += cell_bytes.folio_bytes;
            all.base_bytes += cell_bytes.base_bytes;
            all.zero_bytes += cell_bytes.zero_bytes;
        }
    }
    format!(
        "{cells} cells of {} in rows of {COLUMNS}: {}; {} cuts. The table below lists every stretch.",
        format_bytes(scale.bytes()),
        in_words(&all, region.length_bytes()),
        region.cut_count
    )
}

/// The bar for the whole process, in the colours of the map.
pub fn bar(cell_bytes: &CellBytes, id: &str) -> String {
    let present = cell_bytes.present_bytes().max(1);
    let title = "Present memory by what maps it";
    let mut figure = Figure::new(id, title, &in_words(cell_bytes, cell_bytes.present_bytes()), 24.0);
    let mut from = LEFT;
    for (class, bytes) in by_class(cell_bytes).into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
        let wide = (WIDTH - 2.0 * LEFT) * bytes as f64 / present as f64;
        let hover = format!("{}: {}", CLASSES[class].2, format_bytes(bytes));
        fill(&mut figure, Some(class), (from, 2.0), (wide, 20.0), &hover);
        from += wide;
    }
    figure.finish()
}
