//! SRRIP: each entry has a prediction of how far off its next use is, and the entry with the farthest prediction is replaced.
//!
//! Source: Jaleel, Theobald, Steely and Emer, "High performance cache replacement using re-reference interval prediction
//! (RRIP)", ISCA 2010, section 4: the static policy with hit priority and predictions of two bits.

use super::entry::{Key, invalidate_unordered};

/// The prediction at which an entry is replaced.
pub const DISTANT: u8 = 3;
/// The prediction of a new entry.
pub const LONG: u8 = 2;
/// The prediction of an entry after a hit.
pub const NEAR: u8 = 0;

#[derive(Clone, Debug)]
pub struct Srrip {
    entries: Vec<Key>,
    predictions: Vec<u8>,
    ways: usize,
    mask: u32,
}

impl Srrip {
    pub fn new(sets: u32, ways: u32) -> Srrip {
        let all = (sets * ways) as usize;
        Srrip { entries: vec![0; all], predictions: vec![DISTANT; all], ways: ways as usize, mask: sets - 1 }
    }

    #[inline]
    pub fn touch(&mut self, index: u32, key: Key) -> bool {
        let first = (index & self.mask) as usize * self.ways;
        let entries = &mut self.entries[first..first + self.ways];
        let predictions = &mut self.predictions[first..first + self.ways];
        if let Some(way) = entries.iter().position(|entry| *entry == key) {
            predictions[way] = NEAR;
            return true;
        }
        let free = entries.iter().position(|entry| *entry == 0);
        let way = free.unwrap_or_else(|| farthest(predictions));
        (entries[way], predictions[way]) = (key, LONG);
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

/// Raises all predictions equally until one is distant, and returns the first way with a distant one.
fn farthest(predictions: &mut [u8]) -> usize {
    let max = predictions.iter().copied().max().unwrap_or(DISTANT);
    predictions.iter_mut().for_each(|prediction| *prediction += DISTANT - max);
    predictions.iter().position(|prediction| *prediction == DISTANT).unwrap_or(0)
}
