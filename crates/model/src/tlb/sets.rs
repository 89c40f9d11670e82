//! LRU sets for any type of key, for the caches of walkers.

use super::few::FewWays;
use super::wide::AnyWays;

/// A set-associative cache with LRU replacement. A key is never 0.
#[derive(Clone, Debug)]
pub struct LruSets<K>(Ways<K>);

#[derive(Clone, Debug)]
enum Ways<K> {
    Four(FewWays<K, 4>),
    Eight(FewWays<K, 8>),
    Sixteen(FewWays<K, 16>),
    Any(AnyWays<K>),
}

impl<K: Copy + Default + PartialEq> LruSets<K> {
    /// An empty cache with `sets` (a power of two) times `ways` entries.
    pub fn new(sets: u32, ways: u32) -> LruSets<K> {
        LruSets(match ways {
            4 => Ways::Four(FewWays::new(sets)),
            8 => Ways::Eight(FewWays::new(sets)),
            16 => Ways::Sixteen(FewWays::new(sets)),
            _ => Ways::Any(AnyWays::new(sets, ways)),
        })
    }

    /// Looks up `key` in the set of `index`, and inserts it on a miss. Returns whether it was a hit.
    #[inline]
    pub fn touch(&mut self, index: u32, key: K) -> bool {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch(index, key),
            Ways::Eight(sets) => sets.touch(index, key),
            Ways::Sixteen(sets) => sets.touch(index, key),
            Ways::Any(sets) => sets.touch(index, key),
        }
    }

    /// As [`LruSets::touch`], for several keys. Moves those that missed to the front and returns their number.
    pub fn touch_all(&mut self, keys: &mut [K], index: impl Fn(K) -> u32) -> usize {
        match &mut self.0 {
            Ways::Four(sets) => sets.touch_all(keys, index),
            Ways::Eight(sets) => sets.touch_all(keys, index),
            Ways::Sixteen(sets) => sets.touch_all(keys, index),
            Ways::Any(sets) => sets.touch_all(keys, index),
        }
    }

    /// Drops the keys for which `is_stale` returns `true`.
    pub fn invalidate(&mut self, is_stale: &impl Fn(K) -> bool) {
        match &mut self.0 {
            Ways::Four(sets) => sets.invalidate(is_stale),
            Ways::Eight(sets) => sets.invalidate(is_stale),
            Ways::Sixteen(sets) => sets.invalidate(is_stale),
            Ways::Any(sets) => sets.invalidate(is_stale),
        };
    }
}
