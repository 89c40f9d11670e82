//! A naive TLB, the reference.

use model::machine::{Replacement, TlbShape};

/// A page as a TLB stores it: log2 of its bytes, and its number.
pub type Stored = (u32, u64);

/// Sets of pages with the time of their last use. For FIFO it is the time of insertion, for SRRIP the prediction: 2 for a new
/// entry, 0 after a hit; an entry with 3 is replaced.
pub struct Reference {
    sets: Vec<Vec<(Stored, u64)>>,
    ways: usize,
    replacement: Replacement,
    time: u64,
    /// State of the generator (SplitMix64).
    state: u64,
}

impl Reference {
    pub fn new(tlb: &TlbShape, seed: u64) -> Reference {
        let sets = vec![Vec::new(); tlb.sets as usize];
        Reference { sets, ways: tlb.ways as usize, replacement: tlb.replacement, time: 0, state: seed }
    }

    pub fn misses(&mut self, page: Stored) -> bool {
        self.time += 1;
        let (time, count) = (self.time, self.sets.len() as u64);
        let set = (page.1 % count) as usize;
        if let Some(entry) = self.sets[set].iter_mut().find(|(other, _)| *other == page) {
            match self.replacement {
                Replacement::Fifo => {}
                Replacement::Srrip => entry.1 = 0,
                Replacement::Lru | Replacement::TreePlru | Replacement::Random => entry.1 = time,
            }
            return false;
        }
        let value = if self.replacement == Replacement::Srrip { 2 } else { time };
        if self.sets[set].len() < self.ways {
            self.sets[set].push((page, value));
            return true;
        }
        let times: Vec<u64> = self.sets[set].iter().map(|entry| entry.1).collect();
        let way = match self.replacement {
            Replacement::Lru | Replacement::Fifo => (0..times.len()).min_by_key(|way| times[*way]).unwrap(),
            Replacement::Srrip => self.farthest(set),
            Replacement::TreePlru => half_used_longer_ago(&times),
            Replacement::Random => self.random() as usize % self.ways,
        };
        self.sets[set][way] = (page, value);
        true
    }

    /// Raises all predictions until one is 3, and returns the first such entry.
    fn farthest(&mut self, set: usize) -> usize {
        loop {
            if let Some(way) = self.sets[set].iter().position(|(_, prediction)| *prediction == 3) {
                return way;
            }
            self.sets[set].iter_mut().for_each(|(_, prediction)| *prediction += 1);
        }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Tree-PLRU without a tree: halves the ways down to one, and takes the half whose last use is longer ago each time.
fn half_used_longer_ago(times: &[u64]) -> usize {
    let half = times.len() / 2;
    let (lower, upper) = times.split_at(half);
    if half == 0 {
        0
    } else if lower.iter().max() < upper.iter().max() {
        half_used_longer_ago(lower)
    } else {
        half + half_used_longer_ago(upper)
    }
}
