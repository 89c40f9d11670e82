//! The entries of a set.

/// The number of a stored page; 0 for none.
pub type Key = u32;

/// Drops entries of one set that is ordered by last use; free places are behind all others. Returns how many were dropped.
pub fn forget_in_order<K: Copy + Default + PartialEq>(set: &mut [K], gone: &impl Fn(K) -> bool) -> u64 {
    let mut kept = 0;
    let mut dropped = 0;
    for index in 0..set.len() {
        let key = std::mem::take(&mut set[index]);
        if key == K::default() {
            continue;
        }
        if gone(key) {
            dropped += 1;
        } else {
            set[kept] = key;
            kept += 1;
        }
    }
    dropped
}

/// Drops entries whose places have no order; returns how many were dropped.
pub fn forget_in_place(entries: &mut [Key], gone: &impl Fn(Key) -> bool) -> u64 {
    let mut dropped = 0;
    for entry in entries.iter_mut().filter(|entry| **entry != 0 && gone(**entry)) {
        *entry = 0;
        dropped += 1;
    }
    dropped
}

/// Touches one key after the other. Moves those that missed to the front and returns their number.
#[inline]
pub fn leave_missed<K: Copy>(keys: &mut [K], mut touch: impl FnMut(K) -> bool) -> usize {
    let mut missed = 0;
    for at in 0..keys.len() {
        let key = keys[at];
        let found = touch(key);
        // Branchless: writes the key in any case and advances only on a miss.
        keys[missed] = key;
        missed += usize::from(!found);
    }
    missed
}
