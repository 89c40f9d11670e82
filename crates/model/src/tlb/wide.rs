//! LRU sets of any number of ways, ordered by last use and searched from the front.

use super::entry::{invalidate_ordered, keep_missed};

#[derive(Clone, Debug)]
pub struct AnyWays<K> {
    entries: Vec<K>,
    ways: usize,
    mask: u32,
}

impl<K: Copy + Default + PartialEq> AnyWays<K> {
    pub fn new(sets: u32, ways: u32) -> AnyWays<K> {
        AnyWays { entries: vec![K::default(); (sets * ways) as usize], ways: ways as usize, mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        let first = (index & self.mask) as usize * self.ways;
        let set = &mut self.entries[first..first + self.ways];
        // Moves every entry back one place, up to the key's old place or until the last entry is evicted.
        let mut moving = key;
        for entry in set {
            std::mem::swap(entry, &mut moving);
            if moving == key {
                return true;
            }
        }
        false
    }

    /// As [`AnyWays::touch`], for several keys. Moves those that missed to the front and returns their number.
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        keep_missed(keys, |key| self.touch(index(key), key))
    }

    pub fn invalidate_one(&mut self, index: u32, key: K) {
        let first = (index & self.mask) as usize * self.ways;
        invalidate_ordered(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(K) -> bool) -> u64 {
        self.entries.chunks_mut(self.ways).map(|set| invalidate_ordered(set, is_stale)).sum()
    }
}
