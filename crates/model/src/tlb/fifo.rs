//! FIFO: the entries of a set are in the order of their insertion, and a hit changes nothing.

use super::entry::{Key, invalidate_ordered};

#[derive(Clone, Debug)]
pub struct Fifo {
    /// Set by set, each with the newest entry first and free places at the end.
    entries: Vec<Key>,
    ways: usize,
    mask: u32,
}

impl Fifo {
    pub fn new(sets: u32, ways: u32) -> Fifo {
        Fifo { entries: vec![0; (sets * ways) as usize], ways: ways as usize, mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        let first = (index & self.mask) as usize * self.ways;
        let set = &mut self.entries[first..first + self.ways];
        if set.contains(&key) {
            return true;
        }
        set.copy_within(..self.ways - 1, 1);
        set[0] = key;
        false
    }

    pub fn invalidate_one(&mut self, index: u32, key: Key) {
        let first = (index & self.mask) as usize * self.ways;
        invalidate_ordered(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(Key) -> bool) -> u64 {
        self.entries.chunks_mut(self.ways).map(|set| invalidate_ordered(set, is_stale)).sum()
    }
}
