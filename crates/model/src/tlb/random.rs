//! Random replacement. The generator is seeded, so that every run has the same result.

use super::entry::{Key, invalidate_unordered};

#[derive(Clone, Debug)]
pub struct Random {
    entries: Vec<Key>,
    ways: usize,
    mask: u32,
    state: u64,
}

impl Random {
    pub fn new(sets: u32, ways: u32, seed: u64) -> Random {
        Random { entries: vec![0; (sets * ways) as usize], ways: ways as usize, mask: sets - 1, state: seed }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        let first = (index & self.mask) as usize * self.ways;
        let entries = &mut self.entries[first..first + self.ways];
        if entries.contains(&key) {
            return true;
        }
        let way = entries.iter().position(|entry| *entry == 0);
        let way = way.unwrap_or_else(|| (next(&mut self.state) % self.ways as u64) as usize);
        entries[way] = key;
        false
    }

    pub fn invalidate_one(&mut self, index: u32, key: Key) {
        let first = (index & self.mask) as usize * self.ways;
        invalidate_unordered(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(Key) -> bool) -> u64 {
        invalidate_unordered(&mut self.entries, is_stale)
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
