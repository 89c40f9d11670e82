//! [`LruFilter`] implements [`Filter::Lru`]: it drops runs whose page is already the most recent of its set.
//!
//! In an LRU set the page used last is in front, and using it again changes nothing. So a run can be left out if no other page
//! of its set was used since an earlier run of its page: it does not miss, and leaving it out changes no later miss. The same
//! holds with a multiple of this number of sets, because the pages of a set there all belong to one set here. One page size
//! does not imply another: the page must be in front at each size. TLBs may be shared or separate by thread, fetches, loads and
//! stores. So the page must be in front among all runs of the file, and its own thread must have accessed it in the same ways
//! since the page came to the front. Then it is in front in every TLB that serves any subset of these.

use crate::header::Filter;
use crate::run::{Kind, PAGE_SHIFT, Run};

const SETS_4K: usize = 16;
const SETS_64K: usize = 16;
const SETS_2M: usize = 8;

/// The page in front of a set, and how the last thread that used it has accessed it since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Front {
    page: u64,
    thread: u32,
    /// Bits of [`Kind`], without its order and without the kernel's accesses, which do not use the program's TLB entries.
    kinds: u8,
}

/// A front without a page. No page has this number, because page numbers have at most 52 bits.
const EMPTY: Front = Front { page: u64::MAX, thread: 0, kinds: 0 };

/// Decides for each run of a file, in order, whether it is left out.
#[derive(Clone, Debug)]
pub struct LruFilter {
    fronts_4k: [Front; SETS_4K],
    fronts_64k: [Front; SETS_64K],
    fronts_2m: [Front; SETS_2M],
}

impl Default for LruFilter {
    fn default() -> LruFilter {
        LruFilter { fronts_4k: [EMPTY; SETS_4K], fronts_64k: [EMPTY; SETS_64K], fronts_2m: [EMPTY; SETS_2M] }
    }
}

impl LruFilter {
    /// The filter that the header of a filtered trace states.
    pub const FILTER: Filter =
        Filter::Lru { sets_4k: SETS_4K as u32, sets_64k: SETS_64K as u32, sets_2m: SETS_2M as u32 };

    /// Processes the next run of the file and returns whether it must be kept. A run of the kernel is always kept.
    pub fn keeps(&mut self, thread: u32, run: &Run) -> bool {
        // All three fronts must be updated, whatever the other calls return.
        let changed = [
            move_to_front(&mut self.fronts_4k, run.page, thread, run.kind),
            move_to_front(&mut self.fronts_64k, run.page >> (16 - PAGE_SHIFT), thread, run.kind),
            move_to_front(&mut self.fronts_2m, run.page >> (21 - PAGE_SHIFT), thread, run.kind),
        ];
        changed.contains(&true) || run.kind.has(Kind::KERNEL)
    }

    /// Drops all state because memory has changed: the next run of each page is kept.
    pub fn forget(&mut self) {
        *self = LruFilter::default();
    }
}

/// Moves a page to the front of its set and returns whether that changed anything.
fn move_to_front(fronts: &mut [Front], page: u64, thread: u32, kind: Kind) -> bool {
    let set = page as usize % fronts.len();
    let front = &mut fronts[set];
    let is_same = front.page == page && front.thread == thread;
    let access = if kind.has(Kind::KERNEL) {
        0
    } else {
        kind.bits() & (Kind::FETCH.bits() | Kind::LOAD.bits() | Kind::STORE.bits())
    };
    let kinds = if is_same { front.kinds } else { 0 };
    let now = Front { page, thread, kinds: kinds | access };
    std::mem::replace(front, now) != now
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [u8; 7] = [1, 2, 4, 6, 14, 18, 20];

    fn of(page: u64, kind: u8) -> Run {
        Run { page, kind: Kind::from_bits(kind).unwrap(), accesses: 1 }
    }

    #[test]
    fn keeps_new_kinds_of_access_to_a_page() {
        let mut filter = LruFilter::default();
        assert!(filter.keeps(0, &of(5, 2)), "first");
        assert!(!filter.keeps(0, &of(5, 2)), "again");
        assert!(filter.keeps(0, &of(5, 4)), "a store after loads");
        assert!(!filter.keeps(0, &of(5, 14)), "both were");
        assert!(filter.keeps(0, &of(5, 1)), "a fetch");
        assert!(filter.keeps(0, &of(5, 18)), "the kernel's");
        assert!(!filter.keeps(0, &of(5, 1)), "which is no other page");
        assert!(filter.keeps(1, &of(5, 1)), "another thread");
        assert!(filter.keeps(0, &of(21, 2)), "another page of the set");
        assert!(filter.keeps(0, &of(5, 2)), "which came between");
        assert!(filter.keeps(1, &of(5, 4)), "another thread");
        assert!(filter.keeps(1, &of(5, 2)), "which has not loaded from it");
        filter.forget();
        assert!(filter.keeps(1, &of(5, 2)), "forgotten");
    }

    /// Counts misses of a set-associative LRU TLB naively: each set is a list with the most recent page last.
    fn misses<'a>(runs: impl Iterator<Item = &'a (u32, Run)>, shift: u32, sets: u64, ways: usize) -> u64 {
        let mut lists = vec![Vec::new(); sets as usize];
        let mut misses = 0;
        for (_, run) in runs {
            let page = run.page >> (shift - PAGE_SHIFT);
            let list: &mut Vec<u64> = &mut lists[(page % sets) as usize];
            match list.iter().position(|other| *other == page) {
                Some(place) => drop(list.remove(place)),
                None => misses += 1,
            }
            list.push(page);
            if list.len() > ways {
                list.remove(0);
            }
        }
        misses
    }

    proptest! {
        #![proptest_config(testing::properties(24))]

        #[test]
        fn every_admitted_tlb_misses_as_without_the_filter(
            raw in proptest::collection::vec((0u32..3, 0u64..4, 0u64..40, prop::sample::select(KINDS.to_vec())), 1..1500),
            repeat in 1usize..6,
        ) {
            // Few pages in a few regions of 2M, each run several times, so that many runs are in front.
            let all: Vec<(u32, Run)> = raw
                .iter()
                .flat_map(|(thread, place, page, kind)| {
                    let page = place * 512 * 8 + page * if place % 2 == 0 { 1 } else { 16 };
                    std::iter::repeat_n((*thread, of(page, *kind)), repeat)
                })
                .collect();
            let mut filter = LruFilter::default();
            let kept: Vec<(u32, Run)> = all.iter().filter(|(thread, run)| filter.keeps(*thread, run)).copied().collect();
            prop_assert!(repeat == 1 || kept.len() < all.len() || all.iter().all(|(_, run)| run.kind.has(Kind::KERNEL)));
            type Serves = fn(&(u32, Run)) -> bool;
            let serves: [Serves; 7] = [
                |_| true,
                |(thread, _)| *thread == 0,
                |(_, run)| !run.kind.has(Kind::KERNEL),
                |(thread, run)| *thread == 1 && !run.kind.has(Kind::KERNEL) && !run.kind.has(Kind::FETCH),
                |(_, run)| run.kind.has(Kind::FETCH),
                |(thread, run)| *thread == 0 && !run.kind.has(Kind::KERNEL) && run.kind.has(Kind::LOAD),
                |(_, run)| !run.kind.has(Kind::KERNEL) && run.kind.has(Kind::STORE),
            ];
            for (number, serves) in serves.iter().enumerate() {
                for (shift, least) in [(12, 16), (16, 16), (21, 8)] {
                    for sets in [least, least * 2, least * 3] {
                        for ways in [1, 2, 4] {
                            let with = misses(kept.iter().filter(|run| serves(run)), shift, sets, ways);
                            let without = misses(all.iter().filter(|run| serves(run)), shift, sets, ways);
                            prop_assert_eq!(with, without, "TLB {} pages of 2^{} {} x {}", number, shift, sets, ways);
                        }
                    }
                }
            }
        }
    }
}
