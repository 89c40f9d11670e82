//! Tree-PLRU: each node of a binary tree over the ways points to the half that was not used last.

use super::entry::{Key, invalidate_unordered};

#[derive(Clone, Debug)]
pub struct TreePlru {
    entries: Vec<Key>,
    /// The tree of each set: bit `n` is the direction of node `n`, whose children are `2n` and `2n + 1`. The root is node 1.
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
        let way = found.or_else(free).unwrap_or_else(|| victim(*directions, self.ways));
        entries[way] = key;
        point_away(directions, self.ways, way);
        found.is_some()
    }

    pub fn invalidate_one(&mut self, index: u32, key: Key) {
        let first = (index & self.mask) as usize * self.ways;
        invalidate_unordered(&mut self.entries[first..first + self.ways], &|other| other == key);
    }

    pub fn invalidate(&mut self, is_stale: &impl Fn(Key) -> bool) -> u64 {
        invalidate_unordered(&mut self.entries, is_stale)
    }
}

/// The way to which the directions lead from the root.
fn victim(directions: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (directions >> node & 1) as usize;
    }
    node - ways
}

/// Makes every node above `way` point to the half without `way`.
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
