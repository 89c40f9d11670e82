//! The entries of a set.

/// Stands for a stored page; 0 for none.
pub type Key = u32;

/// Drops entries of one set that is in the order of last uses; the places that become free are behind all others.
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

/// Drops entries whose places have no order; how many they were.
pub fn forget_in_place(entries: &mut [Key], gone: &impl Fn(Key) -> bool) -> u64 {
    let mut dropped = 0;
    for entry in entries.iter_mut().filter(|entry| **entry != 0 && gone(**entry)) {
        *entry = 0;
        dropped += 1;
    }
    dropped
}

/// Touches one key after the other: leaves those that were not there in front, and says how many.
#[inline]
pub fn leave_missed<K: Copy>(keys: &mut [K], mut touch: impl FnMut(K) -> bool) -> usize {
    let mut missed = 0;
    for at in 0..keys.len() {
        let key = keys[at];
        let found = touch(key);
        // No branch depends on what was found.
        keys[missed] = key;
        missed += usize::from(!found);
    }
    missed
}
