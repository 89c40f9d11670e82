//! Compares every TLB with a naive implementation.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A TLB that records when each entry was last used. For tree-PLRU, the times show which half of the ways was used less
/// recently.
struct Naive {
    sets: u32,
    ways: u32,
    replacement: Replacement,
    time: u64,
    generator: u64,
    /// For each way of each set, its key and the time of its last use; for FIFO the time of its insertion, for SRRIP the
    /// prediction of its next use.
    entries: Vec<Vec<Option<(Key, u64)>>>,
}

impl Naive {
    fn new(sets: u32, ways: u32, replacement: Replacement, seed: u64) -> Naive {
        let entries = vec![vec![None; ways as usize]; sets as usize];
        Naive { sets, ways, replacement, time: 0, generator: seed, entries }
    }

    fn touch(&mut self, index: u32, key: Key) -> bool {
        self.time += 1;
        let (time, set) = (self.time, (index % self.sets) as usize);
        let found = self.entries[set].iter().position(|entry| entry.is_some_and(|(other, _)| other == key));
        let free = self.entries[set].iter().position(Option::is_none);
        let way = found.or(free).unwrap_or_else(|| self.victim(set));
        let inserted = self.entries[set][way].map_or(time, |(_, inserted)| inserted);
        let value = match self.replacement {
            Replacement::Lru | Replacement::TreePlru => time,
            Replacement::Random => 0,
            Replacement::Fifo if found.is_some() => inserted,
            Replacement::Fifo => time,
            // The values are those of SRRIP with M = 2 bits: 0 after a hit, and 2^M - 2 for a new entry.
            Replacement::Srrip if found.is_some() => 0,
            Replacement::Srrip => 2,
        };
        self.entries[set][way] = Some((key, value));
        found.is_some()
    }

    fn victim(&mut self, set: usize) -> usize {
        let last_use = |way: &usize| self.entries[set][*way].map_or(0, |(_, time)| time);
        let ways = 0..self.ways as usize;
        match self.replacement {
            Replacement::Lru | Replacement::Fifo => ways.min_by_key(last_use).unwrap(),
            // The rule, as in the paper: "Search for first 3 from left; if 3 found go to replace; else increment all and search
            // again".
            Replacement::Srrip => loop {
                let entries = &mut self.entries[set];
                if let Some(way) = entries.iter().flatten().position(|(_, prediction)| *prediction == 3) {
                    return way;
                }
                entries.iter_mut().flatten().for_each(|(_, prediction)| *prediction += 1);
            },
            Replacement::Random => (random::next(&mut self.generator) % u64::from(self.ways)) as usize,
            // Halves the set of ways until one is left. Each step keeps the half that was last used longer ago.
            Replacement::TreePlru => {
                let mut half = ways.collect::<Vec<usize>>();
                while half.len() > 1 {
                    let upper = half.split_off(half.len() / 2);
                    let newest = |half: &Vec<usize>| half.iter().map(last_use).max();
                    if newest(&upper) < newest(&half) {
                        half = upper;
                    }
                }
                half[0]
            }
        }
    }

    fn invalidate(&mut self, is_stale: impl Fn(Key) -> bool) -> u64 {
        let mut dropped = 0;
        for entry in self.entries.iter_mut().flatten() {
            if entry.is_some_and(|(key, _)| is_stale(key)) {
                (*entry, dropped) = (None, dropped + 1);
            }
        }
        dropped
    }
}

const SHAPES: [(u32, u32); 16] = [
    (1, 1),
    (8, 1),
    (4, 2),
    (16, 4),
    (32, 5),
    (16, 6),
    (8, 8),
    (128, 12),
    (4, 16),
    (1, 10),
    (1, 17),
    (1, 48),
    (1, 64),
    (8, 24),
    (2, 3),
    (1, 3000),
];

fn agree(sets: u32, ways: u32, replacement: Replacement, stream: &[(u32, bool)]) {
    let mut tlb = Tlb::new(sets, ways, replacement, 7);
    let mut naive = Naive::new(sets, ways, replacement, 7);
    for (step, (key, invalidate)) in stream.iter().enumerate() {
        if *invalidate {
            let is_stale = |other: Key| other % 5 == key % 5;
            let dropped = tlb.invalidate(is_stale);
            // Tree-PLRU remembers uses of dropped entries; the naive implementation does not.
            if replacement != Replacement::TreePlru {
                assert_eq!(dropped, naive.invalidate(is_stale), "{sets}x{ways} {replacement:?} at {step}");
                continue;
            }
            naive = Naive::new(sets, ways, replacement, 7);
            tlb = Tlb::new(sets, ways, replacement, 7);
        }
        let (index, key) = (key.wrapping_mul(0x9e37_79b9) >> 7, key + 1);
        if step % 50 == 49 && replacement != Replacement::TreePlru {
            tlb.invalidate_one(index, key);
            naive.invalidate(|other| other == key);
        }
        assert_eq!(tlb.touch(index, key), naive.touch(index, key), "{sets}x{ways} {replacement:?} at {step}");
    }
}

proptest! {
    #![proptest_config(testing::properties(16))]

    #[test]
    fn every_tlb_agrees_with_the_naive_one(
        pages in prop::sample::select(vec![3u32, 40, 300, 5000]),
        stream in proptest::collection::vec((any::<u32>(), proptest::bool::weighted(0.01)), 1..3000),
    ) {
        let stream: Vec<(u32, bool)> = stream.iter().map(|(key, invalidate)| (key % pages, *invalidate)).collect();
        for (sets, ways) in SHAPES {
            agree(sets, ways, Replacement::Lru, &stream);
            agree(sets, ways, Replacement::Random, &stream);
            agree(sets, ways, Replacement::Fifo, &stream);
            agree(sets, ways, Replacement::Srrip, &stream);
            if ways.is_power_of_two() && ways <= 64 {
                agree(sets, ways, Replacement::TreePlru, &stream);
            }
        }
    }
}

#[test]
fn a_lap_hits_only_if_its_pages_fit() {
    for (pages, hits) in [(64, 9 * 64), (65, 0)] {
        let mut tlb = Tlb::new(1, 64, Replacement::Lru, 0);
        let found = (0..10 * pages).filter(|step| tlb.touch(step % pages, step % pages + 1)).count();
        assert_eq!(found, hits, "{pages}");
    }
    // The TLB has 16 sets of 4 ways. Of 65 pages, five belong to one set and four to each of the others.
    let mut tlb = Tlb::new(16, 4, Replacement::Lru, 0);
    let found = (0..10 * 65).filter(|step| tlb.touch(step % 65, step % 65 + 1)).count();
    assert_eq!(found, 9 * 60);
}

/// FIFO and SRRIP differ from LRU in two access patterns: a page that is used in every step, and a scan of pages that are used
/// once.
#[test]
fn fifo_evicts_a_page_in_use_and_srrip_keeps_used_pages_through_a_scan() {
    let hits = |replacement| {
        let mut tlb = Tlb::new(1, 4, replacement, 0);
        tlb.touch(0, 1);
        (2..1000u32).filter(|step| [tlb.touch(0, 1), tlb.touch(0, *step)][0]).count()
    };
    // An entry is evicted from four ways by the fourth insertion after its own. Page 1 has to be inserted again each time, so it
    // misses in every fourth step.
    assert_eq!((hits(Replacement::Lru), hits(Replacement::Fifo)), (998, 749));
    let after_scan = |replacement| {
        let mut tlb = Tlb::new(1, 4, replacement, 0);
        for key in [1, 2, 1, 2, 10, 11, 12, 13] {
            tlb.touch(0, key);
        }
        [1, 2].map(|key| tlb.touch(0, key))
    };
    assert_eq!((after_scan(Replacement::Lru), after_scan(Replacement::Srrip)), ([false; 2], [true; 2]));
}

#[test]
fn the_seed_determines_random_replacement() {
    let hits = |seed| {
        let mut tlb = Tlb::new(1, 16, Replacement::Random, seed);
        (0..4000u32).map(|step| tlb.touch(0, step * step % 37 + 1)).collect::<Vec<bool>>()
    };
    assert_eq!(hits(1), hits(1));
    assert_ne!(hits(1), hits(2));
}

#[test]
fn indexes_each_page_size_by_page_numbers_of_that_size() {
    // There are two sets of one way: even and odd page numbers are in different sets.
    let mut tlb = Tlb::new(2, 1, Replacement::Lru, 0);
    let keys = BTreeMap::from([("2M page 4", (4, 1)), ("4K page 7", (7, 2)), ("4K page 8", (8, 3))]);
    let mut touch = |name: &str| tlb.touch(keys[name].0, keys[name].1);
    assert!(!touch("2M page 4") && !touch("4K page 7"));
    assert!(touch("2M page 4") && touch("4K page 7"));
    assert!(!touch("4K page 8") && !touch("2M page 4") && touch("4K page 7"));
}
