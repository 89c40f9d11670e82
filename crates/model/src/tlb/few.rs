//! LRU sets of few ways, ordered by last use and updated without branches.

use super::entry::{invalidate_ordered, keep_missed};

#[derive(Clone, Debug)]
pub struct FewWays<K, const WAYS: usize> {
    sets: Vec<[K; WAYS]>,
    mask: u32,
}

impl<K: Copy + Default + PartialEq, const WAYS: usize> FewWays<K, WAYS> {
    pub fn new(sets: u32) -> FewWays<K, WAYS> {
        FewWays { sets: vec![[K::default(); WAYS]; sets as usize], mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        let set = &mut self.sets[(index & self.mask) as usize];
        if set[0] == key {
            return true;
        }
        // Branchless: compares and moves every entry in the same way, whether it matches or not. At most one way matches, and
        // `weight` says which; if none does, the last entry is evicted.
        let old = *set;
        let mut weight = 0;
        for (way, other) in old.iter().enumerate().skip(1) {
            weight += if *other == key { (WAYS - way) as u32 } else { 0 };
        }
        let last = WAYS as u32 - weight.max(1);
        for way in 1..WAYS {
            set[way] = if way as u32 <= last { old[way - 1] } else { old[way] };
        }
        set[0] = key;
        weight != 0
    }

    /// As [`FewWays::touch`], for several keys. Moves those that missed to the front and returns their number.
    #[inline]
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        keep_missed(keys, |key| self.touch(index(key), key))
    }

    pub fn invalidate_one(&mut self, index: u32, key: K) {
        invalidate_ordered(&mut self.sets[(index & self.mask) as usize], &|other| other == key);
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(K) -> bool) -> u64 {
        self.sets.iter_mut().map(|set| invalidate_ordered(set, is_stale)).sum()
    }
}
