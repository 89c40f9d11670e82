//! LRU sets without an upper bound on keys, for walkers.

use super::few::Few;
use super::wide::Wide;

/// A cache of keys that are never 0, ordered by last use in each set.
#[derive(Clone, Debug)]
pub struct Sets<K>(Ways<K>);

#[derive(Clone, Debug)]
enum Ways<K> {
    Four(Few<K, 4>),
    Eight(Few<K, 8>),
    Sixteen(Few<K, 16>),
    Any(Wide<K>),
}

impl<K: Copy + Default + PartialEq> Sets<K> {
    /// An empty cache with `sets` (a power of two) times `ways` entries.
    pub fn new(sets: u32, ways: u32) -> Sets<K> {
        Sets(match ways {
            4 => Ways::Four(Few::new(sets)),
            8 => Ways::Eight(Few::new(sets)),
            16 => Ways::Sixteen(Few::new(sets)),
            _ => Ways::Any(Wide::new(sets, ways)),
        })
    }

    /// Looks up `key` in the set of `index`, and inserts it on a miss. Returns whether it was there.
    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch(index, key),
            Ways::Eight(sets) => sets.touch(index, key),
            Ways::Sixteen(sets) => sets.touch(index, key),
            Ways::Any(sets) => sets.touch(index, key),
        }
    }

    /// As [`Sets::touch`], for several keys, with the index of each. Moves the keys that missed to the front and
    /// returns their number.
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch_all(keys, index),
            Ways::Eight(sets) => sets.touch_all(keys, index),
            Ways::Sixteen(sets) => sets.touch_all(keys, index),
            Ways::Any(sets) => sets.touch_all(keys, index),
        }
    }

    /// Drops the keys for which `gone` returns `true`.
    pub fn forget(&mut self, gone: &impl Fn(K) -> bool) {
        match &mut self.0 {
            Ways::Four(sets) => sets.forget(gone),
            Ways::Eight(sets) => sets.forget(gone),
            Ways::Sixteen(sets) => sets.forget(gone),
            Ways::Any(sets) => sets.forget(gone),
        };
    }
}
