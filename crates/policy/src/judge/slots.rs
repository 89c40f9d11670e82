//! [`Shape`]: what prevents larger pages in each slot of a mapping.
//!
//! A slot is a naturally aligned range of the target size inside one mapping. Only there can the kernel map a page of that size
//! (`thp_vma_suitable_order`, include/linux/huge_mm.h).

use super::coverage::Coverage;
use crate::census::{Area, Backing, Mapping, Region, VmaKind};
use crate::size::PageSize;

/// The position of memory relative to the slots of its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// On the main thread's stack.
    Stack,
    /// A private copy of a file's page (`do_cow_fault`, mm/memory.c: single pages only).
    FileCopy,
    /// The mapping is smaller than a slot.
    TooSmall,
    /// In no slot of its mapping.
    NoSlot,
    /// In a slot that contains a zero page.
    ZeroInSlot,
    /// In a slot that is only partly present.
    Holes,
    /// In a slot that is completely present and contains part of a larger folio: the slot held a larger page before.
    Refilled,
    /// In any other slot that is completely present.
    Full,
}

/// The sums over the memory of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeSum {
    /// The shape of all this memory.
    pub shape: Shape,
    /// Bytes that are not mapped as asked.
    pub missing_bytes: u64,
    /// Bytes that may or may not be as asked, because folios are not visible.
    pub unseen_bytes: u64,
    /// Number of slots, for shapes inside slots.
    pub slots: u64,
    /// Bytes that are present in these slots, however they are mapped.
    pub present_bytes: u64,
}

impl ShapeSum {
    /// Bytes that are absent in its slots.
    pub fn absent_bytes(&self, target: PageSize) -> u64 {
        (self.slots * target.bytes()).saturating_sub(self.present_bytes)
    }
}

/// Groups the missing and unseen memory of a mapping by shape.
pub fn shapes(area: &Area, target: PageSize, coverage: impl Fn(&Mapping) -> Coverage) -> Vec<ShapeSum> {
    let mut sums = ShapeSums::default();
    let outside = match area.kind {
        VmaKind::Stack => Some(Shape::Stack),
        VmaKind::PrivateFile => Some(Shape::FileCopy),
        _ if area.length_bytes() < target.bytes() => Some(Shape::TooSmall),
        _ => None,
    };
    match outside {
        Some(shape) => area.regions.iter().for_each(|region| {
            sums.add(shape, region.length_bytes(), coverage(&region.mapping), 0);
        }),
        None => by_slot(area, target, coverage, &mut sums),
    }
    sums.0
}

/// Consecutive slots with the same content, or one slot.
struct Slots {
    start: u64,
    count: u64,
    present_bytes: u64,
    has_zero_page: bool,
    has_cut_folio: bool,
    missing_bytes: u64,
    unseen_bytes: u64,
}

fn by_slot(area: &Area, target: PageSize, coverage: impl Fn(&Mapping) -> Coverage, sums: &mut ShapeSums) {
    let first = target.align_up(area.start).unwrap_or(u64::MAX);
    let end = target.align_down(area.end);
    let mut open: Option<Slots> = None;
    for region in area.regions {
        let coverage = coverage(&region.mapping);
        for (from, to) in cut_at_slots(region, target, first, end) {
            if from < first || from >= end {
                sums.add(Shape::NoSlot, to - from, coverage, 0);
                continue;
            }
            let start = target.align_down(from);
            if open.as_ref().is_some_and(|slots| slots.start != start) {
                sums.close(open.take(), target);
            }
            let slots = open.get_or_insert(Slots {
                start,
                count: (to - start).div_ceil(target.bytes()),
                present_bytes: 0,
                has_zero_page: false,
                has_cut_folio: false,
                missing_bytes: 0,
                unseen_bytes: 0,
            });
            slots.present_bytes += to - from;
            slots.has_zero_page |= region.mapping.backing == Backing::Zero;
            slots.has_cut_folio |= coverage == Coverage::Cut;
            match coverage {
                Coverage::Missing => slots.missing_bytes += to - from,
                Coverage::Unseen => slots.unseen_bytes += to - from,
                _ => {}
            }
        }
    }
    sums.close(open, target);
}

/// Splits a region at slot boundaries: the part below the first slot, the part in its first slot, all slots that it fills, the
/// part in its last slot, and the part above the last slot.
fn cut_at_slots(region: &Region, target: PageSize, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let (start, stop) = (region.start, region.end);
    let whole_from = target.align_up(start).unwrap_or(u64::MAX).clamp(first, end.max(first));
    let whole_to = target.align_down(stop).clamp(first, end.max(first));
    let mut cuts = [start, first, whole_from, whole_to, end, stop].map(|cut| cut.clamp(start, stop));
    cuts.sort_unstable();
    (0..cuts.len() - 1).map(move |at| (cuts[at], cuts[at + 1])).filter(|(from, to)| from < to)
}

#[derive(Default)]
struct ShapeSums(Vec<ShapeSum>);

impl ShapeSums {
    fn add(&mut self, shape: Shape, bytes: u64, coverage: Coverage, slots: u64) {
        let (missing_bytes, unseen_bytes) = match coverage {
            Coverage::Missing => (bytes, 0),
            Coverage::Unseen => (0, bytes),
            _ => return,
        };
        self.push(ShapeSum { shape, missing_bytes, unseen_bytes, slots, present_bytes: 0 });
    }

    fn close(&mut self, slots: Option<Slots>, target: PageSize) {
        let Some(slots) = slots.filter(|slots| slots.missing_bytes + slots.unseen_bytes > 0) else { return };
        let shape = if slots.has_zero_page {
            Shape::ZeroInSlot
        } else if slots.present_bytes < slots.count * target.bytes() {
            Shape::Holes
        } else if slots.has_cut_folio {
            Shape::Refilled
        } else {
            Shape::Full
        };
        let Slots { missing_bytes, unseen_bytes, count, present_bytes, .. } = slots;
        self.push(ShapeSum { shape, missing_bytes, unseen_bytes, slots: count, present_bytes });
    }

    fn push(&mut self, sum: ShapeSum) {
        match self.0.iter_mut().find(|other| other.shape == sum.shape) {
            Some(other) => {
                other.missing_bytes += sum.missing_bytes;
                other.unseen_bytes += sum.unseen_bytes;
                other.slots += sum.slots;
                other.present_bytes += sum.present_bytes;
            }
            None => self.0.push(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::Folio;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGE: u64 = 4096;
    const TARGET: PageSize = PageSize::K64;

    fn regions(pages: &[(u64, Backing)]) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (address, backing) in pages {
            let mapping = Mapping { backing: *backing, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K4) };
            match regions.last_mut() {
                Some(last) if last.end == *address && last.mapping == mapping => last.end += PAGE,
                _ => regions.push(Region { start: *address, end: address + PAGE, mapping }),
            }
        }
        regions
    }

    fn missing(mapping: &Mapping) -> Coverage {
        if mapping.backing == Backing::Zero { Coverage::Unconcerned } else { Coverage::Missing }
    }

    fn by_shape(sums: Vec<ShapeSum>) -> BTreeMap<Shape, (u64, u64)> {
        sums.into_iter().map(|sum| (sum.shape, (sum.missing_bytes, sum.slots))).collect()
    }

    /// A slow reference implementation that checks the slot of every page.
    fn slow(area: &Area) -> BTreeMap<Shape, (u64, u64)> {
        let pages: BTreeMap<u64, Backing> = area
            .regions
            .iter()
            .flat_map(|region| {
                (region.start..region.end).step_by(PAGE as usize).map(|address| (address, region.mapping.backing))
            })
            .collect();
        let mut shapes: BTreeMap<Shape, (u64, std::collections::BTreeSet<u64>)> = BTreeMap::new();
        for (address, _) in pages.iter().filter(|(_, backing)| **backing != Backing::Zero) {
            let start = TARGET.align_down(*address);
            let slot: Vec<Option<&Backing>> = (0..16).map(|page| pages.get(&(start + page * PAGE))).collect();
            let shape = if area.length_bytes() < TARGET.bytes() {
                Shape::TooSmall
            } else if start < area.start || start + TARGET.bytes() > area.end {
                Shape::NoSlot
            } else if slot.contains(&Some(&Backing::Zero)) {
                Shape::ZeroInSlot
            } else if slot.contains(&None) {
                Shape::Holes
            } else {
                Shape::Full
            };
            let entry = shapes.entry(shape).or_default();
            entry.0 += PAGE;
            entry.1.insert(start);
        }
        let counted = |shape: Shape, slots: usize| if shape < Shape::ZeroInSlot { 0 } else { slots as u64 };
        shapes.into_iter().map(|(shape, (bytes, slots))| (shape, (bytes, counted(shape, slots.len())))).collect()
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn shapes_agree_with_a_look_at_every_page(
            start in 0u64..64, runs in proptest::collection::vec((0u64..40, 1u64..50, 0u8..8), 0..12), tail in 0u64..20,
        ) {
            let start = start * PAGE;
            let mut pages = Vec::new();
            let mut at = start;
            for (hole, length, kind) in runs {
                at += if kind < 4 { 0 } else { hole * PAGE };
                let backing = if kind == 7 { Backing::Zero } else { Backing::Anonymous };
                for _ in 0..length {
                    pages.push((at, backing));
                    at += PAGE;
                }
            }
            let end = at + (tail + u64::from(at == start)) * PAGE;
            let area = Area { start, end, kind: VmaKind::Anonymous, regions: &regions(&pages) };
            prop_assert_eq!(by_shape(shapes(&area, TARGET, missing)), slow(&area));
        }
    }

    #[test]
    fn recognises_stacks_and_file_copies_by_their_mapping() {
        let pages: Vec<(u64, Backing)> = (0..32).map(|page| (page * PAGE, Backing::Anonymous)).collect();
        let regions = regions(&pages);
        for (kind, shape) in
            [(VmaKind::Stack, Shape::Stack), (VmaKind::PrivateFile, Shape::FileCopy), (VmaKind::Anonymous, Shape::Full)]
        {
            let area = Area { start: 0, end: 32 * PAGE, kind, regions: &regions };
            let sums = by_shape(shapes(&area, TARGET, missing));
            assert_eq!(sums.keys().collect::<Vec<_>>(), [&shape]);
            assert_eq!(sums[&shape].0, 32 * PAGE);
        }
    }
}
