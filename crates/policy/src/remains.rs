//! [`Remains`]: what is left of large pages that are freed in parts.
//!
//! Once the first part is freed, base-page PTEs map the rest. When the rest is freed too, it is counted as it was mapped before:
//! the split was only the start of the removal.

use crate::census::{Mapping, Region};
use crate::ranges::Ranges;
use crate::size::PageSize;

/// The remaining parts of large pages that were cut, with their mapping before the cut.
#[derive(Clone, Debug, Default)]
pub struct Remains(Ranges<Mapping>);

impl Remains {
    /// The ranges next to `[start, end)`, which is about to be given back, that may hold other parts of its pages of `large`
    /// bytes.
    pub fn neighbours(start: u64, end: u64, large: PageSize) -> impl Iterator<Item = (u64, u64)> {
        let (low, high) = (large.align_down(start), large.align_up(end).unwrap_or(end));
        [(low, start), (end, high)].into_iter().filter(|(from, to)| from < to)
    }

    /// Records the remaining parts of pages of at least `large` bytes that are about to be cut.
    pub fn note<'a>(&mut self, left: impl IntoIterator<Item = &'a Region>, large: PageSize) {
        let regions = left.into_iter();
        let was_large = regions.filter(|region| region.mapping.is_concerned() && region.mapping.effective() >= large);
        was_large.for_each(|region| self.0.set(region.start, region.end, region.mapping));
    }

    /// The remaining parts of cut pages in a range, with their mapping before the cut.
    pub fn within(&self, start: u64, end: u64) -> Vec<Region> {
        let region = |(start, end, mapping)| Region { start, end, mapping };
        self.0.within(start, end).into_iter().map(region).collect()
    }

    /// The parts of a range that hold no remaining part of a cut page.
    pub fn uncut_parts(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.0.gaps(start, end)
    }

    /// Forgets a range that is given back; memory mapped there later is unrelated.
    pub fn forget(&mut self, start: u64, end: u64) {
        self.0.clear(start, end);
    }
}
