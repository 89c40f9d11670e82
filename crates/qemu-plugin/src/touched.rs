// SPDX-License-Identifier: GPL-2.0-or-later
//! [`Touched`]: the pages that a thread has touched, to detect first touches, whose time is recorded.
//!
//! There is one bit for each page, in blocks found by hashing, and a cache of recently found pages in front. Every run that
//! begins is checked here, in programs with threads or forked processes.

use std::ops::Range;

use trace::{Kind, PAGE_SHIFT};

/// log2 of the address range of a block: two cache lines of bits.
const BLOCK_SHIFT: u32 = PAGE_SHIFT + 9;
/// Words with the bits of a block's pages.
const WORDS: usize = 8;
/// Initial number of slots of a thread; a power of two.
const FIRST_SLOTS: usize = 1 << 4;
/// Minimum number of slots for each block.
const SLOTS_PER_BLOCK: usize = 2;
/// 2^64 divided by the golden ratio (Fibonacci hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Size of the cache of recent pages: a power of two, small enough for the first-level cache of a core.
const RECENT: usize = 1 << 9;
/// Set in the address of a recent page that was stored to.
const STORED: u64 = 1;
/// An empty entry of the cache.
const NO_PAGE: u64 = u64::MAX;

/// The touched pages of a block, and those that were stored to.
#[derive(Clone, Copy, Debug)]
struct Bits {
    touched: [u64; WORDS],
    stored: [u64; WORDS],
}

const NONE: Bits = Bits { touched: [0; WORDS], stored: [0; WORDS] };

/// The set of touched pages.
#[derive(Debug)]
pub struct Touched {
    /// For each cache entry, the address of the last page found and whether it was stored to.
    recent: [u64; RECENT],
    /// One more than the number of each block; 0 for an empty slot.
    blocks: Box<[u64]>,
    bits: Box<[Bits]>,
    used: usize,
}

impl Touched {
    /// An empty set.
    pub fn new() -> Touched {
        Touched::of(FIRST_SLOTS)
    }

    fn of(slots: usize) -> Touched {
        Touched { recent: [NO_PAGE; RECENT], blocks: vec![0; slots].into(), bits: vec![NONE; slots].into(), used: 0 }
    }

    /// Whether the page at this address was touched by an access that counts for `kind`: a store for a store, otherwise any
    /// access.
    #[inline(always)]
    pub fn has(&mut self, page: u64, kind: Kind) -> bool {
        self.has_lately(page, kind) || self.finds(page, kind)
    }

    /// As [`Touched::has`], but by the cache of recent pages alone.
    #[inline(always)]
    pub fn has_lately(&self, page: u64, kind: Kind) -> bool {
        let any = if kind.has(Kind::STORE) { 0 } else { STORED };
        self.recent[place(page)] | any == page | STORED
    }

    /// As [`Touched::has`], but by the bits, for a page that is not in the cache.
    #[inline(never)]
    fn finds(&mut self, page: u64, kind: Kind) -> bool {
        let slot = self.slot(page);
        if self.blocks[slot] != (page >> BLOCK_SHIFT) + 1 {
            return false;
        }
        let is_set = |words: &[u64; WORDS]| words[word(page)] & bit(page) != 0;
        let (touched, stored) = (is_set(&self.bits[slot].touched), is_set(&self.bits[slot].stored));
        if touched {
            self.recent[place(page)] = page | if stored { STORED } else { 0 };
        }
        if kind.has(Kind::STORE) { stored } else { touched }
    }

    /// The slot of an address's block, or the slot where it would be inserted.
    fn slot(&self, address: u64) -> usize {
        let block = address >> BLOCK_SHIFT;
        let mut slot = (block.wrapping_mul(GOLDEN) >> (u64::BITS / 2)) as usize & (self.blocks.len() - 1);
        while self.blocks[slot] != block + 1 && self.blocks[slot] != 0 {
            slot = (slot + 1) & (self.blocks.len() - 1);
        }
        slot
    }

    /// Records that a page was touched.
    pub fn insert(&mut self, address: u64, kind: Kind) {
        if (self.used + 1) * SLOTS_PER_BLOCK > self.blocks.len() {
            self.grow();
        }
        let slot = self.slot(address);
        self.used += usize::from(self.blocks[slot] == 0);
        self.blocks[slot] = (address >> BLOCK_SHIFT) + 1;
        let bits = &mut self.bits[slot];
        bits.touched[word(address)] |= bit(address);
        if kind.has(Kind::STORE) {
            bits.stored[word(address)] |= bit(address);
        }
    }

    fn grow(&mut self) {
        let before = std::mem::replace(self, Touched::of(self.blocks.len() * 2));
        for (block, bits) in before.blocks.iter().zip(&before.bits).filter(|(block, _)| **block != 0) {
            let slot = self.slot((block - 1) << BLOCK_SHIFT);
            (self.blocks[slot], self.bits[slot]) = (*block, *bits);
            self.used += 1;
        }
    }

    /// Forgets the pages of an address range, whose mapping is gone.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.recent.fill(NO_PAGE);
        for (block, bits) in self.blocks.iter().zip(&mut self.bits).filter(|(block, _)| **block != 0) {
            let begin = (block - 1) << BLOCK_SHIFT;
            let end = begin + (1 << BLOCK_SHIFT);
            if range.start <= begin && end <= range.end {
                *bits = NONE;
            } else if range.start < end && begin < range.end {
                let (first, last) = (range.start.max(begin) >> PAGE_SHIFT, (range.end.min(end) - 1) >> PAGE_SHIFT);
                for address in (first..=last).map(|page| page << PAGE_SHIFT) {
                    bits.touched[word(address)] &= !bit(address);
                    bits.stored[word(address)] &= !bit(address);
                }
            }
        }
    }
}

/// The entry of a page in the cache.
#[inline(always)]
fn place(page: u64) -> usize {
    (page >> PAGE_SHIFT) as usize % RECENT
}

#[inline(always)]
fn word(address: u64) -> usize {
    (address >> (PAGE_SHIFT + 6)) as usize % WORDS
}

#[inline(always)]
fn bit(address: u64) -> u64 {
    1 << (address >> PAGE_SHIFT & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn pages_are_those_of_an_obvious_set() {
        let (mut touched, mut expected, mut state) = (Touched::new(), HashMap::new(), 1u64);
        for step in 0..200_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Some pages close to each other, and some anywhere.
            let page = if step % 3 == 0 { (state >> 40) % (1 << 20) } else { (state >> 40) % 3000 };
            let kind = [Kind::LOAD, Kind::STORE, Kind::MODIFY, Kind::FETCH][(state >> 20) as usize % 4];
            let known = expected.get(&page).is_some_and(|stored| *stored || !kind.has(Kind::STORE));
            assert_eq!(touched.has(page << PAGE_SHIFT, kind), known, "{step}: {page:#x}");
            touched.insert(page << PAGE_SHIFT, kind);
            *expected.entry(page).or_insert(false) |= kind.has(Kind::STORE);
            if step % 1000 == 999 {
                let begin = if step % 2000 == 999 { page } else { page & !511 };
                let end = begin + (state >> 30) % 2000 + 1;
                touched.forget(&(begin << PAGE_SHIFT..end << PAGE_SHIFT));
                expected.retain(|page, _| !(begin..end).contains(page));
            }
        }
        touched.forget(&(0..u64::MAX));
        assert!((0..1 << 20).all(|page| !touched.has(page << PAGE_SHIFT, Kind::LOAD)));
    }
}
