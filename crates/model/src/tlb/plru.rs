//! Tree-PLRU: each node of a binary tree over the ways points to the half that was used less recently.

use super::entry::{Key, forget_in_place};

#[derive(Clone, Debug)]
pub struct TreePlru {
    entries: Vec<Key>,
    /// The directions of every set: bit `n` is node `n`, whose children are `2n` and `2n + 1`; the root is node 1.
    directions: Vec<u64>,
    ways: usize,
    mask: u32,
}

impl TreePlru {
    /// `ways` must be a power of two and at most 64.
    pub fn new(sets: u32, ways: u32) -> TreePlru {
        let entries = vec![0; (sets * ways) as usize];
        TreePlru { entries, directions: vec![0; sets as usize], ways: ways as usize, mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        let set = (index & self.mask) as usize;
        let entries = &mut self.entries[set * self.ways..][..self.ways];
        let directions = &mut self.directions[set];
        let found = entries.iter().position(|entry| *entry == key);
        let free = || entries.iter().position(|entry| *entry == 0);
        let way = found.or_else(free).unwrap_or_else(|| pointed_to(*directions, self.ways));
        entries[way] = key;
        point_away(directions, self.ways, way);
        found.is_some()
    }

    pub fn forget_one(&mut self, index: u32, key: Key) {
        let first = (index & self.mask) as usize * self.ways;
        forget_in_place(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn forget(&mut self, gone: &impl Fn(Key) -> bool) -> u64 {
        forget_in_place(&mut self.entries, gone)
    }
}

/// The way that the directions lead to.
fn pointed_to(directions: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (directions >> node & 1) as usize;
    }
    node - ways
}

/// Makes every node above `way` point to its other half.
fn point_away(directions: &mut u64, ways: usize, way: usize) {
    let mut node = ways + way;
    while node > 1 {
        let parent = node / 2;
        // The even child is the lower half, to which a clear bit points.
        let away = u64::from(node & 1 == 0);
        *directions = *directions & !(1 << parent) | away << parent;
        node = parent;
    }
}
