//! Large pages that go in parts.
//!
//! What is left of one is mapped by base pages from then on. When it goes too, it is counted as it was mapped before: the call that
//! cut the page is the end of it, not how it was.

use crate::census::{Mapping, Region};
use crate::ranges::Ranges;
use crate::size::PageSize;

/// What is left of large pages of which a part has gone, as it was mapped before.
#[derive(Clone, Debug, Default)]
pub struct Remains(Ranges<Mapping>);

impl Remains {
    /// The ranges beside `[start, end)`, which is about to go, in which something of its pages of `large` bytes may be left.
    pub fn beside(start: u64, end: u64, large: PageSize) -> impl Iterator<Item = (u64, u64)> {
        let (low, high) = (large.align_down(start), large.align_up(end).unwrap_or(end));
        [(low, start), (end, high)].into_iter().filter(|(from, to)| from < to)
    }

    /// Notes what is left of pages of at least `large` bytes that are about to be cut.
    pub fn note<'a>(&mut self, left: impl IntoIterator<Item = &'a Region>, large: PageSize) {
        let regions = left.into_iter();
        let was_large = regions.filter(|region| region.mapping.is_concerned() && region.mapping.effective() >= large);
        was_large.for_each(|region| self.0.set(region.start, region.end, region.mapping));
    }

    /// What of a range is left of pages that were cut, as it was mapped before.
    pub fn within(&self, start: u64, end: u64) -> Vec<Region> {
        let region = |(start, end, mapping)| Region { start, end, mapping };
        self.0.within(start, end).into_iter().map(region).collect()
    }

    /// The other parts of a range.
    pub fn others(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.0.gaps(start, end)
    }

    /// A range goes. What comes there will be something else.
    pub fn goes(&mut self, start: u64, end: u64) {
        self.0.clear(start, end);
    }
}
