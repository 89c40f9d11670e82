//! The folios behind base-page PTEs: frame numbers from `/proc/PID/pagemap`, folio boundaries from `/proc/kpageflags`
//! (`stable_page_flags` in fs/proc/page.c).
//!
//! A folio of 2^n pages begins at a frame number that is a multiple of 2^n; its first page has COMPOUND_HEAD, all others have
//! COMPOUND_TAIL. The head of a tail page is found by rounding its frame number down to multiples of ever larger powers of two. The size
//! of a folio is the smallest 2^n for which the frame head + 2^n is not a tail. Where the kernel reports which sizes exist at all
//! (`hugepages-*kB/stats/nr_anon`), one query shows for a whole aligned block that it has no large folio.

use std::io;

use policy::census::Folio;
use policy::size::PageSize;

/// Flag of the first page of a large folio.
pub const HEAD: u64 = 1 << 15;
/// Flag of every other page of a large folio.
pub const TAIL: u64 = 1 << 16;

/// The source of the flags of page frames.
pub trait FrameFlags {
    /// The flags of a frame; 0 beyond the last frame.
    fn at(&mut self, frame: u64) -> io::Result<u64>;
    /// Hints that most queries will be in this range, roughly ascending.
    fn expect(&mut self, frames: std::ops::Range<u64>);
}

/// Pages whose addresses and frames are both consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Virtual page number of the first page.
    pub page: u64,
    /// Frame of the first page.
    pub frame: u64,
    pub pages: u64,
}

/// The folio orders that may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orders {
    /// Nothing is known about the orders.
    Any,
    /// Only base pages and these orders, smallest first.
    Only(Vec<u32>),
}

/// The largest order that is considered; far above every kernel's limit.
const MAX_ORDER: u32 = 30;

impl Orders {
    fn smallest(&self) -> u32 {
        match self {
            Orders::Any => 1,
            // Without large folios, any block has none.
            Orders::Only(orders) => orders.first().copied().unwrap_or(MAX_ORDER),
        }
    }

    /// The orders that are expected, then all others, in case the kernel has created other folios in the meantime.
    fn candidates(&self) -> impl Iterator<Item = u32> + '_ {
        let likely: &[u32] = match self {
            Orders::Any => &[],
            Orders::Only(orders) => orders,
        };
        likely.iter().copied().chain(1..=MAX_ORDER)
    }
}

/// Finds for every page of the run the folio that contains it: calls `report(first page, pages, folio)` in address order and
/// without gaps.
pub fn resolve(
    run: Run,
    orders: &Orders,
    base: PageSize,
    flags: &mut impl FrameFlags,
    mut report: impl FnMut(u64, u64, Folio),
) -> io::Result<()> {
    if *orders == Orders::Any {
        // The frame after the run shows whether the last folio ends there.
        flags.expect(run.frame..run.frame + run.pages + 1);
    }
    let end = run.frame + run.pages;
    let mut frame = run.frame;
    while frame < end {
        let page = run.page + (frame - run.frame);
        let (pages, folio) = match folio_of(frame, orders, flags)? {
            Some(found) => mapped_part(found, page, frame, end, base),
            None => (base_pages(frame, end, orders), Folio::Whole(base)),
        };
        report(page, pages, folio);
        frame += pages;
    }
    Ok(())
}

struct LargeFolio {
    head: u64,
    order: u32,
}

/// The large folio that contains `frame`; `None` if the frame is a base page, or if its folio was freed or split while it was read.
fn folio_of(frame: u64, orders: &Orders, flags: &mut impl FrameFlags) -> io::Result<Option<LargeFolio>> {
    // If the first frame of an aligned block of the smallest order is in no large folio, no frame of the block is. The reader caches
    // that answer.
    if let Orders::Only(_) = orders
        && !is_compound(flags.at(frame & !((1 << orders.smallest()) - 1))?)
    {
        return Ok(None);
    }
    let here = flags.at(frame)?;
    if !is_compound(here) {
        return Ok(None);
    }
    let head = if here & HEAD != 0 { Some(frame) } else { head_below(frame, flags)? };
    let Some(head) = head else { return Ok(None) };
    for order in orders.candidates() {
        let (middle, end) = (head + (1 << (order - 1)), head + (1 << order));
        // In an aligned block, the frame in the middle is a tail only of a folio that is the whole block.
        let is_aligned = head & ((1 << order) - 1) == 0;
        if is_aligned && flags.at(end)? & TAIL == 0 && flags.at(middle)? & TAIL != 0 {
            // Past the end of this folio, the frame is the tail of one that is gone.
            return Ok((end > frame).then_some(LargeFolio { head, order }));
        }
    }
    Ok(None)
}

/// Whether a frame with these flags is in a large folio.
fn is_compound(flags: u64) -> bool {
    flags & (HEAD | TAIL) != 0
}

/// The head of the folio whose tail is `frame`. What is rounded down by less than the folio's size is inside the folio.
fn head_below(frame: u64, flags: &mut impl FrameFlags) -> io::Result<Option<u64>> {
    for order in 1..=MAX_ORDER {
        let head = frame & !((1 << order) - 1);
        if head != frame && flags.at(head)? & HEAD != 0 {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// How many pages, from `frame` on, are both in the run and in this folio; `Whole` if they are all of it, at an aligned address.
fn mapped_part(found: LargeFolio, page: u64, frame: u64, end: u64, base: PageSize) -> (u64, Folio) {
    let folio_end = found.head + (1 << found.order);
    let pages = folio_end.min(end) - frame;
    let size = PageSize::new(base.bytes() << found.order).unwrap_or(base);
    let aligned = page & ((1 << found.order) - 1) == 0;
    let folio = if pages == 1 << found.order && aligned { Folio::Whole(size) } else { Folio::Part(size) };
    (pages, folio)
}

/// Base pages from `frame` on that need no query of their own: to the end of the aligned block of the smallest order, or of the run; 1 if
/// the orders are not known.
fn base_pages(frame: u64, end: u64, orders: &Orders) -> u64 {
    let smallest = orders.smallest();
    let block_end = if *orders == Orders::Any { frame + 1 } else { (frame | ((1 << smallest) - 1)) + 1 };
    block_end.min(end) - frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Physical memory as consecutive folios of given orders, each naturally aligned.
    struct Memory {
        flags: Vec<u64>,
        folio: Vec<(u64, u32)>,
    }

    impl Memory {
        fn new(orders: &[u32]) -> Memory {
            let mut memory = Memory { flags: Vec::new(), folio: Vec::new() };
            for order in orders {
                while !(memory.flags.len() as u64).is_multiple_of(1 << order) {
                    memory.push_folio(0);
                }
                memory.push_folio(*order);
            }
            memory
        }

        fn push_folio(&mut self, order: u32) {
            let head = self.flags.len() as u64;
            for at in 0..1u64 << order {
                self.flags.push(if order == 0 {
                    0
                } else if at == 0 {
                    HEAD
                } else {
                    TAIL
                });
                self.folio.push((head, order));
            }
        }
    }

    impl FrameFlags for &Memory {
        fn at(&mut self, frame: u64) -> io::Result<u64> {
            Ok(self.flags.get(frame as usize).copied().unwrap_or(0))
        }
        fn expect(&mut self, _: std::ops::Range<u64>) {}
    }

    /// The reference, page by page: a folio is complete when every one of its frames is mapped in its place, in one run, and at an aligned
    /// address.
    fn slow(memory: &Memory, run: Run) -> BTreeMap<u64, Folio> {
        let mapped = |frame: u64| (run.frame..run.frame + run.pages).contains(&frame);
        (0..run.pages)
            .map(|at| {
                let (head, order) = memory.folio[(run.frame + at) as usize];
                let size = PageSize::new(4096 << order).unwrap();
                let address = (run.page + at) as i64 - (run.frame + at - head) as i64;
                let whole = (head..head + (1 << order)).all(mapped) && address % (1 << order) == 0;
                (run.page + at, if whole { Folio::Whole(size) } else { Folio::Part(size) })
            })
            .collect()
    }

    fn fast(memory: &Memory, run: Run, orders: &Orders) -> BTreeMap<u64, Folio> {
        let mut folios = BTreeMap::new();
        let mut source = memory;
        resolve(run, orders, PageSize::K4, &mut source, |page, pages, folio| {
            for at in page..page + pages {
                assert_eq!(folios.insert(at, folio), None, "each page is reported once");
            }
        })
        .unwrap();
        folios
    }

    proptest! {
        #![proptest_config(testing::properties(256))]
        #[test]
        fn resolve_agrees_with_the_page_by_page_reference(
            orders in proptest::collection::vec(0u32..6, 1..40),
            from in 0.0f64..1.0,
            share in 0.0f64..1.0,
            page in 0u64..1000,
            shift_to_align: bool,
            forgotten in proptest::collection::vec(any::<bool>(), 6),
        ) {
            let memory = Memory::new(&orders);
            let all = memory.flags.len() as u64;
            let frame = ((all - 1) as f64 * from) as u64;
            let pages = 1 + ((all - frame - 1) as f64 * share) as u64;
            let page = if shift_to_align { (page << 6) + frame % 64 } else { page };
            let run = Run { page, frame, pages };
            let expected = slow(&memory, run);
            prop_assert_eq!(&fast(&memory, run, &Orders::Any), &expected);
            let mut present: Vec<u32> = memory.folio.iter().map(|folio| folio.1).filter(|order| *order > 0).collect();
            present.sort_unstable();
            present.dedup();
            prop_assert_eq!(&fast(&memory, run, &Orders::Only(present.clone())), &expected);
            // The kernel has made folios of further orders since it reported the smallest ones.
            let smallest = present.first().copied();
            present.retain(|order| Some(*order) == smallest || !forgotten[*order as usize]);
            prop_assert_eq!(&fast(&memory, run, &Orders::Only(present)), &expected);
        }
    }

    #[test]
    fn a_tail_without_its_head_is_taken_for_single_pages() {
        let memory = Memory { flags: vec![0, 0, TAIL, TAIL, 0], folio: vec![] };
        let run = Run { page: 2, frame: 2, pages: 2 };
        let folios = fast(&memory, run, &Orders::Any);
        assert_eq!(folios.into_values().collect::<Vec<_>>(), [Folio::Whole(PageSize::K4); 2]);
    }

    #[test]
    fn a_folio_that_is_not_on_the_list_is_found_all_the_same() {
        let memory = Memory::new(&[4, 0]);
        let run = Run { page: 16, frame: 0, pages: 17 };
        assert_eq!(fast(&memory, run, &Orders::Only(vec![2, 3])), slow(&memory, run));
    }
}
