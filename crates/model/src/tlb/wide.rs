//! Sets of any number of ways, ordered by last use and searched from the front.

use super::entry::{forget_in_order, leave_missed};

#[derive(Clone, Debug)]
pub struct Wide<K> {
    entries: Vec<K>,
    ways: usize,
    mask: u32,
}

impl<K: Copy + Default + PartialEq> Wide<K> {
    pub fn new(sets: u32, ways: u32) -> Wide<K> {
        Wide { entries: vec![K::default(); (sets * ways) as usize], ways: ways as usize, mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        let first = (index & self.mask) as usize * self.ways;
        let set = &mut self.entries[first..first + self.ways];
        // Every entry moves back one place, until the key's old place is reached or the last entry is evicted.
        let mut moving = key;
        for entry in set {
            std::mem::swap(entry, &mut moving);
            if moving == key {
                return true;
            }
        }
        false
    }

    /// As [`Wide::touch`], for several keys. Moves those that missed to the front and returns their number.
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        leave_missed(keys, |key| self.touch(index(key), key))
    }

    pub fn forget_one(&mut self, index: u32, key: K) {
        let first = (index & self.mask) as usize * self.ways;
        forget_in_order(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn forget(&mut self, gone: &impl Fn(K) -> bool) -> u64 {
        self.entries.chunks_mut(self.ways).map(|set| forget_in_order(set, gone)).sum()
    }
}
