//! First in, first out: the entries of a set are ordered by arrival, and a hit changes nothing.

use super::entry::{Key, forget_in_order};

#[derive(Clone, Debug)]
pub struct Fifo {
    /// By set, the newest entry first; free places are behind all others.
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

    pub fn forget_one(&mut self, index: u32, key: Key) {
        let first = (index & self.mask) as usize * self.ways;
        forget_in_order(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn forget(&mut self, gone: &impl Fn(Key) -> bool) -> u64 {
        self.entries.chunks_mut(self.ways).map(|set| forget_in_order(set, gone)).sum()
    }
}
