//! Memory compaction before a measurement.

/// Asks the kernel to compact all memory, so that free blocks of every size are available, as the model assumes. Needs root;
/// without it nothing happens.
pub fn compact() {
    let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
}
