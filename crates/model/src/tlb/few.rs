//! Sets of few ways, ordered by last use and updated without branches.

use super::entry::{forget_in_order, leave_missed};

#[derive(Clone, Debug)]
pub struct Few<K, const WAYS: usize> {
    sets: Vec<[K; WAYS]>,
    mask: u32,
}

impl<K: Copy + Default + PartialEq, const WAYS: usize> Few<K, WAYS> {
    pub fn new(sets: u32) -> Few<K, WAYS> {
        Few { sets: vec![[K::default(); WAYS]; sets as usize], mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        let set = &mut self.sets[(index & self.mask) as usize];
        if set[0] == key {
            return true;
        }
        // Branchless: every entry is compared and moved in the same way, whether it matches or not. At most one place
        // can match, and the weight identifies it; without a match the last entry is evicted.
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

    /// As [`Few::touch`], for several keys. Moves those that missed to the front and returns their number.
    #[inline]
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        leave_missed(keys, |key| self.touch(index(key), key))
    }

    pub fn forget_one(&mut self, index: u32, key: K) {
        forget_in_order(&mut self.sets[(index & self.mask) as usize], &|other| other == key);
    }

    pub fn forget(&mut self, gone: &impl Fn(K) -> bool) -> u64 {
        self.sets.iter_mut().map(|set| forget_in_order(set, gone)).sum()
    }
}
