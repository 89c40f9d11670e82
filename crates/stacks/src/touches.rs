//! [`Touches`]: which stack the pages of one address space belong to.

use std::collections::BTreeMap;
use std::ops::Range;

use policy::size::PageSize;

/// The touches and the mapping calls of one address space. `T` says where the program was.
#[derive(Clone, Debug)]
pub struct Touches<T> {
    /// By the address of the page.
    pages: BTreeMap<u64, T>,
    /// Ranges that one call mapped or populated, by their first addresses. They do not overlap.
    ranges: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Touches<T> {
    fn default() -> Touches<T> {
        Touches { pages: BTreeMap::new(), ranges: BTreeMap::new() }
    }
}

impl<T: Copy> Touches<T> {
    /// A page that was not present was touched.
    pub fn touch(&mut self, page: u64, stack: T) {
        self.pages.insert(page, stack);
    }

    /// A range was mapped or populated by one call.
    pub fn map(&mut self, range: Range<u64>, stack: T) {
        self.forget(range.clone());
        if !range.is_empty() {
            self.ranges.insert(range.start, (range.end, stack));
        }
    }

    /// A range was populated by one call. If parts of it were touched before, which parts is not known, and they keep their stacks.
    pub fn populate(&mut self, range: Range<u64>, stack: T) {
        if !range.is_empty() && self.pages.range(range.clone()).next().is_none() {
            self.map(range, stack);
        }
    }

    /// Memory was unmapped, or its content dropped.
    pub fn forget(&mut self, range: Range<u64>) {
        self.take(range);
    }

    /// Memory was moved to another address.
    pub fn move_memory(&mut self, from: u64, to: u64, bytes: u64) {
        let moved = self.take(from..from.saturating_add(bytes));
        self.forget(to..to.saturating_add(bytes));
        let place = |address: u64| to + (address - from);
        self.pages.extend(moved.pages.into_iter().map(|(page, stack)| (place(page), stack)));
        self.ranges.extend(moved.ranges.into_iter().map(|(start, (end, stack))| (place(start), (place(end), stack))));
    }

    /// Removes what is known about a range, and returns it.
    fn take(&mut self, range: Range<u64>) -> Touches<T> {
        let mut taken = Touches::default();
        if range.is_empty() {
            return taken;
        }
        taken.pages = self.pages.range(range.clone()).map(|(page, stack)| (*page, *stack)).collect();
        for page in taken.pages.keys() {
            self.pages.remove(page);
        }
        let first = self.ranges.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        let near = self.ranges.range(first..range.end).map(|(start, (end, stack))| (*start, *end, *stack));
        let overlapping: Vec<_> = near.filter(|(_, end, _)| *end > range.start).collect();
        for (start, end, stack) in overlapping {
            self.ranges.remove(&start);
            taken.ranges.insert(start.max(range.start), (end.min(range.end), stack));
            if start < range.start {
                self.ranges.insert(start, (range.start, stack));
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, stack));
            }
        }
        taken
    }

    /// Reports what mapped each part of `region`: what is known of it, the bounds of the range, and the part.
    pub fn each_range(&self, region: &Range<u64>, mut report: impl FnMut(Option<T>, Range<u64>, Range<u64>)) {
        let first = self.ranges.range(..=region.start).next_back().map_or(region.start, |(start, _)| *start);
        let (mut at, mut gap_start) = (region.start, 0);
        for (&start, &(end, mapped)) in self.ranges.range(first..region.end) {
            let part = start.max(region.start)..end.min(region.end);
            if !part.is_empty() {
                if at < part.start {
                    report(None, gap_start..start, at..part.start);
                }
                at = part.end;
                report(Some(mapped), start..end, part);
            }
            gap_start = end;
        }
        if at < region.end {
            report(None, gap_start..u64::MAX, at..region.end);
        }
    }

    /// Reports what touched each part of `region`, which is present memory between the `bounds` of a mapping; `None` for memory
    /// whose touch is not known. The largest block of pages that one fault makes present is `reach`.
    pub fn each_part(
        &self,
        bounds: &Range<u64>,
        reach: PageSize,
        region: &Range<u64>,
        mut report: impl FnMut(Option<T>, Range<u64>),
    ) {
        self.each_range(region, |populated, _, part| match populated {
            Some(_) => report(populated, part),
            None => self.each_touched_part(bounds, reach, part, &mut report),
        });
    }

    /// Gives each page the touch with which it shares the smallest naturally aligned block, if that is at most `reach`.
    fn each_touched_part(
        &self,
        bounds: &Range<u64>,
        reach: PageSize,
        region: Range<u64>,
        report: &mut impl FnMut(Option<T>, Range<u64>),
    ) {
        let before = self.pages.range(bounds.start..=region.start.max(bounds.start)).next_back();
        let after = self.pages.range(region.start + 1..bounds.end.max(region.start + 1));
        let mut touched = before.into_iter().chain(after).map(|(page, touch)| (*page, *touch)).peekable();
        let mut at = region.start;
        while let Some((page, touch)) = touched.next() {
            let end = touched.peek().map_or(region.end, |(next, _)| boundary(page, *next).clamp(at, region.end));
            let block = reach.align_down(page)..reach.align_down(page).saturating_add(reach.bytes());
            let inside = block.start.clamp(at, end)..block.end.clamp(at, end);
            for (touch, part) in [(None, at..inside.start), (Some(touch), inside.clone()), (None, inside.end..end)] {
                if !part.is_empty() {
                    report(touch, part);
                }
            }
            at = end;
            if at >= region.end {
                return;
            }
        }
        report(None, at..region.end);
    }
}

/// The first address that shares a smaller naturally aligned block with `second` than with `first`, which is lower.
fn boundary(first: u64, second: u64) -> u64 {
    let block_bits = 63 - (first ^ second).leading_zeros();
    second >> block_bits << block_bits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;
    /// The reach of the property test.
    const REACH_PAGES: u64 = 16;

    fn parts(touches: &Touches<u32>, mapping: Range<u64>, region: Range<u64>) -> Vec<(Option<u32>, Range<u64>)> {
        let mut parts = Vec::new();
        touches.each_part(&mapping, PageSize::M2, &region, |stack, range| parts.push((stack, range)));
        parts
    }

    #[test]
    fn a_large_page_belongs_to_the_fault_that_made_it() {
        let mut touches = Touches::default();
        // The second block of 2M was touched near its end, the third at its start.
        touches.touch((4 << 20) - PAGE, 1);
        touches.touch(4 << 20, 2);
        let mapping = 0..8 << 20;
        assert_eq!(parts(&touches, mapping.clone(), 2 << 20..4 << 20), [(Some(1), 2 << 20..4 << 20)]);
        assert_eq!(parts(&touches, mapping.clone(), 4 << 20..6 << 20), [(Some(2), 4 << 20..6 << 20)]);
        assert_eq!(
            parts(&touches, mapping, 0..8 << 20),
            [(None, 0..2 << 20), (Some(1), 2 << 20..4 << 20), (Some(2), 4 << 20..6 << 20), (None, 6 << 20..8 << 20)],
            "no fault makes more than a large page present"
        );
    }

    #[test]
    fn memory_of_another_mapping_is_not_near() {
        let mut touches = Touches::default();
        touches.touch(PAGE, 1);
        assert_eq!(parts(&touches, 2 * PAGE..4 * PAGE, 2 * PAGE..3 * PAGE), [(None, 2 * PAGE..3 * PAGE)]);
    }

    #[test]
    fn populated_memory_belongs_to_its_call_and_moves_with_it() {
        let mut touches = Touches::default();
        touches.touch(0, 1);
        touches.map(2 * PAGE..6 * PAGE, 2);
        touches.move_memory(4 * PAGE, 20 * PAGE, 4 * PAGE);
        assert_eq!(
            parts(&touches, 0..8 * PAGE, 0..8 * PAGE),
            [(Some(1), 0..2 * PAGE), (Some(2), 2 * PAGE..4 * PAGE), (Some(1), 4 * PAGE..8 * PAGE)]
        );
        let moved = parts(&touches, 20 * PAGE..24 * PAGE, 20 * PAGE..24 * PAGE);
        assert_eq!(moved, [(Some(2), 20 * PAGE..22 * PAGE), (None, 22 * PAGE..24 * PAGE)]);
    }

    /// The stacks of pages, found one by one.
    #[derive(Default)]
    struct SlowTouches {
        pages: BTreeMap<u64, u32>,
        mapped: BTreeMap<u64, u32>,
    }

    impl SlowTouches {
        fn of(&self, page: u64, mapping: &Range<u64>) -> Option<u32> {
            let near =
                self.pages.iter().filter(|(at, _)| mapping.contains(&(**at * PAGE)) && (**at ^ page) < REACH_PAGES);
            let block_bits = |at: u64| u64::BITS - (at ^ page).leading_zeros();
            let nearest = near.min_by_key(|(at, _)| (block_bits(**at), at.abs_diff(page)));
            self.mapped.get(&page).or(nearest.map(|(_, stack)| stack)).copied()
        }
    }

    proptest! {
        #![proptest_config(testing::properties(256))]

        #[test]
        fn agrees_with_a_search_page_by_page(
            steps in prop::collection::vec((0u8..4, 0u64..64, 1u64..24, 0u64..64), 0..40),
            mapping in (0u64..32, 1u64..64),
        ) {
            let (mut touches, mut slow) = (Touches::default(), SlowTouches::default());
            for (stack, (what, at, pages, to)) in steps.into_iter().enumerate() {
                let (stack, range) = (stack as u32, at..at + pages);
                match what {
                    0 => {
                        touches.touch(at * PAGE, stack);
                        slow.pages.insert(at, stack);
                    }
                    1 => {
                        touches.map(at * PAGE..range.end * PAGE, stack);
                        range.for_each(|page| {
                            slow.pages.remove(&page);
                            slow.mapped.insert(page, stack);
                        });
                    }
                    2 => {
                        touches.forget(at * PAGE..range.end * PAGE);
                        range.for_each(|page| {
                            slow.pages.remove(&page);
                            slow.mapped.remove(&page);
                        });
                    }
                    _ => {
                        // mremap refuses ranges that overlap.
                        let to = if to < at + pages && at < to + pages { at + pages } else { to };
                        touches.move_memory(at * PAGE, to * PAGE, pages * PAGE);
                        for map in [&mut slow.pages, &mut slow.mapped] {
                            for page in 0..pages {
                                let moved = map.remove(&(at + page));
                                map.remove(&(to + page));
                                map.extend(moved.map(|stack| (to + page, stack)));
                            }
                        }
                    }
                }
            }
            let mapping = mapping.0 * PAGE..(mapping.0 + mapping.1) * PAGE;
            let mut next = mapping.start;
            touches.each_part(&mapping, PageSize::K64, &mapping, |stack, range| {
                assert_eq!(range.start, next, "parts follow one another");
                next = range.end;
                for page in range.start / PAGE..range.end / PAGE {
                    assert_eq!(stack, slow.of(page, &mapping), "page {page}");
                }
            });
            assert_eq!(next, mapping.end);
        }
    }
}
