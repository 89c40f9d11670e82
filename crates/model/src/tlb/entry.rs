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
