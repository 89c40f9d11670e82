//! Sets of LRU without a bound on keys: what walkers ask.

use super::few::Few;
use super::wide::Wide;

/// A cache of keys that are never 0, in the order of last uses by set.
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
    /// An empty cache of `sets` (a power of two) times `ways`.
    pub fn new(sets: u32, ways: u32) -> Sets<K> {
        Sets(match ways {
            4 => Ways::Four(Few::new(sets)),
            8 => Ways::Eight(Few::new(sets)),
            16 => Ways::Sixteen(Few::new(sets)),
            _ => Ways::Any(Wide::new(sets, ways)),
        })
    }

    /// Looks for `key` in the set of `index`, and brings it in if it is not there. Whether it was there.
    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch(index, key),
            Ways::Eight(sets) => sets.touch(index, key),
            Ways::Sixteen(sets) => sets.touch(index, key),
            Ways::Any(sets) => sets.touch(index, key),
        }
    }

    /// As [`Sets::touch`], of one key after the other, with the index of each: leaves the keys that were not there in front,
    /// and says how many.
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch_all(keys, index),
            Ways::Eight(sets) => sets.touch_all(keys, index),
            Ways::Sixteen(sets) => sets.touch_all(keys, index),
            Ways::Any(sets) => sets.touch_all(keys, index),
        }
    }

    /// Drops the keys that `gone` says.
    pub fn forget(&mut self, gone: &impl Fn(K) -> bool) {
        match &mut self.0 {
            Ways::Four(sets) => sets.forget(gone),
            Ways::Eight(sets) => sets.forget(gone),
            Ways::Sixteen(sets) => sets.forget(gone),
            Ways::Any(sets) => sets.forget(gone),
        };
    }
}
