//! Operations on the entries of a set.

/// The number of a stored page; 0 for none.
pub type Key = u32;

/// Drops entries of one ordered set and keeps the order; free places are at the end. Returns how many it dropped.
pub fn invalidate_ordered<K: Copy + Default + PartialEq>(set: &mut [K], is_stale: &impl Fn(K) -> bool) -> u64 {
    let mut kept = 0;
    let mut dropped = 0;
    for index in 0..set.len() {
        let key = std::mem::take(&mut set[index]);
        if key == K::default() {
            continue;
        }
        if is_stale(key) {
            dropped += 1;
        } else {
            set[kept] = key;
            kept += 1;
        }
    }
    dropped
}

/// Drops entries and leaves all other entries in their ways. Returns how many it dropped.
pub fn invalidate_unordered(entries: &mut [Key], is_stale: &impl Fn(Key) -> bool) -> u64 {
    let mut dropped = 0;
    for entry in entries.iter_mut().filter(|entry| **entry != 0 && is_stale(**entry)) {
        *entry = 0;
        dropped += 1;
    }
    dropped
}

/// Touches the keys in order. Moves those that missed to the front and returns their number.
#[inline]
pub fn keep_missed<K: Copy>(keys: &mut [K], mut touch: impl FnMut(K) -> bool) -> usize {
    let mut missed = 0;
    for at in 0..keys.len() {
        let key = keys[at];
        let found = touch(key);
        // Branchless: writes the key even on a hit, but advances only on a miss.
        keys[missed] = key;
        missed += usize::from(!found);
    }
    missed
}
