//! Converts the windows of regions to cells of a map ([`Part`]): collapses empty stretches, and puts several windows
//! into a cell if there are too many to draw.

use policy::inspect::{Region, Window};
use policy::size::PageSize;

/// Maximum number of cells of all regions, except regions drawn window by window.
const MAX_CELLS: u64 = 4096;
/// A region of at most this many windows is drawn window by window, however large other regions are.
const FEW_WINDOWS: usize = 256;
/// A longer empty stretch, in cells, is collapsed.
const KEPT_EMPTY: u64 = 2;

/// How many windows a cell represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Size of a window: that of a PMD leaf.
    pub window: PageSize,
    /// Windows per cell, a power of two.
    pub windows: u64,
}

/// Bytes in a cell, by what maps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellBytes {
    /// Mapped by leaves of PMD size or more, or by pool pages.
    pub leaf_bytes: u64,
    /// Mapped by base-page entries, in larger folios that are mapped completely.
    pub folio_bytes: u64,
    /// Mapped by base-page entries, without a visible larger folio.
    pub base_bytes: u64,
    /// Mapped by the zero page.
    pub zero_bytes: u64,
    /// Why the memory is not mapped by larger pages.
    pub why: Why,
}

/// Why windows are not mapped larger: the index of the cause in the region's list of causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// The windows are mapped larger, or the cause is unknown.
    #[default]
    None,
    /// All windows with a cause have this one.
    One(u16),
    /// The windows have different causes.
    Several,
}

/// A part of a region's strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A cell with memory.
    Cell {
        /// First address.
        start: u64,
        /// End address, exclusive.
        end: u64,
        cell_bytes: CellBytes,
    },
    /// A stretch without memory.
    Empty {
        /// First address.
        start: u64,
        /// End address, exclusive.
        end: u64,
    },
}

impl Scale {
    /// The smallest cell with which all regions together have at most [`MAX_CELLS`] cells.
    pub fn of(regions: &[&Region], window: PageSize) -> Scale {
        let mut scale = Scale { window, windows: 1 };
        let many = || regions.iter().filter(|region| region.windows.len() > FEW_WINDOWS);
        let cells = |scale: Scale| -> u64 { many().map(|region| cells(region, scale)).sum() };
        while cells(scale) > MAX_CELLS && scale.windows < 1 << 30 {
            scale.windows *= 2;
        }
        scale
    }

    /// The scale for one region: window by window if the region has few windows.
    pub fn for_region(self, region: &Region) -> Scale {
        let windows = if region.windows.len() <= FEW_WINDOWS { 1 } else { self.windows };
        Scale { windows, ..self }
    }

    /// Bytes of address space in a cell.
    pub fn bytes(self) -> u64 {
        self.window.bytes().saturating_mul(self.windows)
    }

    fn place(self, address: u64) -> u64 {
        address / self.bytes()
    }
}

impl Why {
    /// The cause of two cells taken together.
    pub fn and(self, other: Why) -> Why {
        match (self, other) {
            (Why::None, one) | (one, Why::None) => one,
            (one, other) if one == other => one,
            _ => Why::Several,
        }
    }

    /// The cause in words; `None` if there is none to report.
    pub fn describe(self, region: &Region) -> Option<String> {
        match self {
            Why::None => None,
            Why::One(number) => Some(region.causes.get(usize::from(number))?.cause.describe()),
            Why::Several => Some("several causes".into()),
        }
    }

    /// The mark above a cell: the cause's number in the list next to the strip.
    pub fn mark(self) -> Option<String> {
        match self {
            Why::None => None,
            Why::One(number) => Some((number + 1).to_string()),
            Why::Several => Some("*".into()),
        }
    }
}

impl CellBytes {
    pub fn present_bytes(&self) -> u64 {
        self.leaf_bytes + self.folio_bytes + self.base_bytes + self.zero_bytes
    }

    fn add(&mut self, window: &Window) {
        self.leaf_bytes += window.leaf_bytes;
        self.folio_bytes += window.folio_bytes;
        self.base_bytes += window.base_bytes;
        self.zero_bytes += window.zero_bytes;
        self.why = self.why.and(window.cause_index.map_or(Why::None, Why::One));
    }
}

/// Number of cells with memory. A region lists only windows with memory.
fn cells(region: &Region, scale: Scale) -> u64 {
    let mut last = None;
    region
        .windows
        .iter()
        .filter(|window| last.replace(scale.place(window.start)) != Some(scale.place(window.start)))
        .count() as u64
}

/// The strip of a region in address order: adjacent cells, and the empty stretches between them.
pub fn strip(region: &Region, scale: Scale) -> Vec<Part> {
    let mut filled: Vec<(u64, CellBytes)> = Vec::new();
    for window in &region.windows {
        let place = scale.place(window.start);
        match filled.last_mut() {
            Some((last, cell_bytes)) if *last == place => cell_bytes.add(window),
            _ => {
                let mut cell_bytes = CellBytes::default();
                cell_bytes.add(window);
                filled.push((place, cell_bytes));
            }
        }
    }
    let mut parts = Vec::new();
    let mut next = scale.place(region.start);
    for (place, cell_bytes) in filled {
        empty(region, scale, next, place, &mut parts);
        parts.push(cell(region, scale, place, cell_bytes));
        next = place + 1;
    }
    empty(region, scale, next, scale.place(region.end.saturating_sub(1)) + 1, &mut parts);
    parts
}

fn cell(region: &Region, scale: Scale, place: u64, cell_bytes: CellBytes) -> Part {
    let start = place.saturating_mul(scale.bytes());
    Part::Cell { start: start.max(region.start), end: start.saturating_add(scale.bytes()).min(region.end), cell_bytes }
}

/// Appends the cells `from..to`, which are without memory: individually if they are few, otherwise as one part.
fn empty(region: &Region, scale: Scale, from: u64, to: u64, parts: &mut Vec<Part>) {
    match to.saturating_sub(from) {
        0 => {}
        few if few <= KEPT_EMPTY => {
            parts.extend((from..to).map(|place| cell(region, scale, place, CellBytes::default())));
        }
        _ => {
            let (start, end) = (from.saturating_mul(scale.bytes()), to.saturating_mul(scale.bytes()));
            parts.push(Part::Empty { start: start.max(region.start), end: end.min(region.end) });
        }
    }
}
