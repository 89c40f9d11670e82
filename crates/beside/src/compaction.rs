//! Free blocks of all sizes.

/// Makes free blocks of all sizes, as far as they can be made: the model has them. Needs root; without it nothing happens.
pub fn compact() {
    let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
}
