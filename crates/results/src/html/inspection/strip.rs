//! From windows to the cells of a map: empty stretches collapsed, and so many windows a cell that a page can show all of them.

use policy::inspect::{Region, Window};
use policy::size::PageSize;

/// Cells of all regions together at most, those apart that are drawn window by window.
const MOST_CELLS: u64 = 4096;
/// Windows that are a cell each, however large other regions are.
const FEW_WINDOWS: usize = 256;
/// An empty stretch of more cells than this is collapsed.
const KEPT_EMPTY: u64 = 2;

/// How much a cell stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// A window: the size of a PMD leaf.
    pub window: PageSize,
    /// Windows in a cell, a power of two.
    pub windows: u64,
}

/// Bytes of a cell, by what maps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filling {
    /// By leaves of PMD size or more, or pages of a pool.
    pub leaf_bytes: u64,
    /// By base-page entries, of larger folios that are whole.
    pub folio_bytes: u64,
    /// By base-page entries, of nothing larger that is seen.
    pub base_bytes: u64,
    /// Zero pages.
    pub zero_bytes: u64,
    /// Why it is not larger.
    pub why: Why,
}

/// Why windows are not larger: the number of the cause among those of the region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Why {
    /// They are, or nothing is known.
    #[default]
    None,
    /// All that have a cause have this one.
    One(u16),
    /// Several causes.
    Several,
}

/// A part of a region's strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A cell.
    Cell {
        /// Its first address.
        start: u64,
        /// The address after its last.
        end: u64,
        /// What is in it.
        filling: Filling,
    },
    /// Addresses without memory.
    Empty {
        /// The first.
        start: u64,
        /// The one after the last.
        end: u64,
    },
}

impl Scale {
    /// The least cell with which all regions have at most [`MOST_CELLS`].
    pub fn of(regions: &[&Region], window: PageSize) -> Scale {
        let mut scale = Scale { window, windows: 1 };
        let many = || regions.iter().filter(|region| region.windows.len() > FEW_WINDOWS);
        let cells = |scale: Scale| -> u64 { many().map(|region| cells(region, scale)).sum() };
        while cells(scale) > MOST_CELLS && scale.windows < 1 << 30 {
            scale.windows *= 2;
        }
        scale
    }

    /// That of a region among those that it was made for: window by window where it has few of them.
    pub fn for_region(self, region: &Region) -> Scale {
        let windows = if region.windows.len() <= FEW_WINDOWS { 1 } else { self.windows };
        Scale { windows, ..self }
    }

    /// Bytes of addresses in a cell.
    pub fn bytes(self) -> u64 {
        self.window.bytes().saturating_mul(self.windows)
    }

    fn place(self, address: u64) -> u64 {
        address / self.bytes()
    }
}

impl Why {
    /// Those of both.
    pub fn and(self, other: Why) -> Why {
        match (self, other) {
            (Why::None, one) | (one, Why::None) => one,
            (one, other) if one == other => one,
            _ => Why::Several,
        }
    }

    /// The cause in words; none where there is none.
    pub fn describe(self, region: &Region) -> Option<String> {
        match self {
            Why::None => None,
            Why::One(number) => Some(region.causes.get(usize::from(number))?.cause.describe()),
            Why::Several => Some("several causes".into()),
        }
    }

    /// The mark above a cell: the cause's number in the list beside the strip.
    pub fn mark(self) -> Option<String> {
        match self {
            Why::None => None,
            Why::One(number) => Some((number + 1).to_string()),
            Why::Several => Some("*".into()),
        }
    }
}

impl Filling {
    /// All that is present.
    pub fn present_bytes(&self) -> u64 {
        self.leaf_bytes + self.folio_bytes + self.base_bytes + self.zero_bytes
    }

    fn add(&mut self, window: &Window) {
        self.leaf_bytes += window.leaf_bytes;
        self.folio_bytes += window.folio_bytes;
        self.base_bytes += window.base_bytes;
        self.zero_bytes += window.zero_bytes;
        self.why = self.why.and(window.why.map_or(Why::None, Why::One));
    }
}

/// Cells that have memory: a region has no window without.
fn cells(region: &Region, scale: Scale) -> u64 {
    let mut last = None;
    region
        .windows
        .iter()
        .filter(|window| last.replace(scale.place(window.start)) != Some(scale.place(window.start)))
        .count() as u64
}

/// The strip of a region, in the order of addresses: cells that lie side by side, and what is empty between them.
pub fn strip(region: &Region, scale: Scale) -> Vec<Part> {
    let mut filled: Vec<(u64, Filling)> = Vec::new();
    for window in &region.windows {
        let place = scale.place(window.start);
        match filled.last_mut() {
            Some((last, filling)) if *last == place => filling.add(window),
            _ => {
                let mut filling = Filling::default();
                filling.add(window);
                filled.push((place, filling));
            }
        }
    }
    let mut parts = Vec::new();
    let mut next = scale.place(region.start);
    for (place, filling) in filled {
        empty(region, scale, next, place, &mut parts);
        parts.push(cell(region, scale, place, filling));
        next = place + 1;
    }
    empty(region, scale, next, scale.place(region.end.saturating_sub(1)) + 1, &mut parts);
    parts
}

fn cell(region: &Region, scale: Scale, place: u64, filling: Filling) -> Part {
    let start = place.saturating_mul(scale.bytes());
    Part::Cell { start: start.max(region.start), end: start.saturating_add(scale.bytes()).min(region.end), filling }
}

/// The cells `from..to` without memory: as they are where they are few, else as one part.
fn empty(region: &Region, scale: Scale, from: u64, to: u64, parts: &mut Vec<Part>) {
    match to.saturating_sub(from) {
        0 => {}
        few if few <= KEPT_EMPTY => {
            parts.extend((from..to).map(|place| cell(region, scale, place, Filling::default())));
        }
        _ => {
            let (start, end) = (from.saturating_mul(scale.bytes()), to.saturating_mul(scale.bytes()));
            parts.push(Part::Empty { start: start.max(region.start), end: end.min(region.end) });
        }
    }
}
