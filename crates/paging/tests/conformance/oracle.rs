//! The naive oracle: an ordered map of ranges.

use std::collections::BTreeMap;

use paging::{Attributes, Flags, InputAddress, OutputAddress};

/// A range that is mapped to consecutive memory with the same attributes.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: InputAddress,
    pa: OutputAddress,
    attributes: Attributes,
}

/// The mapped ranges, by first address.
#[derive(Debug, Default)]
pub struct Oracle {
    ranges: BTreeMap<InputAddress, Range>,
}

impl Oracle {
    /// Splits a range at `at`, if one contains it.
    fn cut(&mut self, at: InputAddress) {
        let before = self.ranges.range_mut(..at).next_back().filter(|(_, range)| range.end > at);
        if let Some((start, range)) = before {
            let upper = Range { pa: range.pa + (at - *start), ..*range };
            range.end = at;
            self.ranges.insert(at, upper);
        }
    }

    /// Maps a range and returns whether nothing was mapped there.
    pub fn map(&mut self, va: InputAddress, pa: OutputAddress, bytes: u64, attributes: Attributes) -> bool {
        let end = va + bytes;
        let overlaps = self.ranges.range(..end).next_back().is_some_and(|(_, range)| range.end > va);
        if !overlaps {
            self.ranges.insert(va, Range { end, pa, attributes });
        }
        !overlaps
    }

    /// Unmaps a range.
    pub fn unmap(&mut self, va: InputAddress, bytes: u64) {
        self.cut(va);
        self.cut(va + bytes);
        let inside: Vec<InputAddress> = self.ranges.range(va..va + bytes).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| {
            self.ranges.remove(start);
        });
    }

    /// Changes the attributes of a range and returns whether all of it is mapped.
    pub fn protect(&mut self, va: InputAddress, bytes: u64, attributes: Attributes) -> bool {
        let mut at = va;
        while at < va + bytes {
            match self.ranges.range(..=at).next_back().filter(|(_, range)| range.end > at) {
                Some((_, range)) => at = range.end,
                None => return false,
            }
        }
        self.cut(va);
        self.cut(va + bytes);
        self.ranges.range_mut(va..va + bytes).for_each(|(_, range)| range.attributes = attributes);
        true
    }

    /// The output address of an address, and its attributes.
    pub fn translate(&self, va: InputAddress) -> Option<(OutputAddress, Attributes)> {
        let (start, range) = self.ranges.range(..=va).next_back().filter(|(_, range)| range.end > va)?;
        let attributes = Attributes { flags: range.attributes.flags - Flags::STATE, ..range.attributes };
        Some((range.pa + (va - *start), attributes))
    }

    /// The address of the memory of a range, if all of it is mapped to consecutive memory with the same attributes.
    pub fn consecutive_memory(&self, va: InputAddress, bytes: u64) -> Option<OutputAddress> {
        let (pa, attributes) = self.translate(va)?;
        let mut at = va;
        while at < va + bytes {
            self.translate(at).filter(|found| *found == (pa + (at - va), attributes))?;
            at = self.ranges.range(..=at).next_back()?.1.end;
        }
        Some(pa)
    }

    /// Whether any part of a range is mapped.
    pub fn has_any(&self, va: InputAddress, last: InputAddress) -> bool {
        self.ranges.range(..=last).next_back().is_some_and(|(_, range)| range.end > va)
    }

    /// The number of mapped bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, range)| range.end - *start).sum()
    }

    /// Every address at which a range begins or ends.
    pub fn borders(&self) -> Vec<InputAddress> {
        self.ranges.iter().flat_map(|(start, range)| [*start, range.end]).collect()
    }
}
