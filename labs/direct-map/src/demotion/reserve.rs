//! Lowers the memory that the kernel keeps free for itself while a demotion runs: no secret page can be in it.
//!
//! Transparent huge pages raise min_free_kbytes so that blocks stay free for compaction (mm/khugepaged.c,
//! `set_recommended_min_free_kbytes`): 66M on any machine with three zones, and the watermarks follow it. The value that the
//! kernel uses without THP is enough for allocations that must not wait for memory.

use std::fmt::Display;

use host::{Host, HostError};
use lease::{Lease, Report};

const FILE: &str = "/proc/sys/vm/min_free_kbytes";

/// Lowers the reserve until the lease is restored, if it is higher than the kernel needs; returns a sentence if that failed.
pub(super) fn lower(host: &Host, lease: &mut Lease) -> Option<String> {
    let failed = |error: &dyn Display| Some(format!("what the kernel keeps free was not lowered: {error}"));
    match kilobytes(host) {
        Err(error) => failed(&error),
        Ok((found, needed)) if found <= needed => None,
        Ok((_, needed)) => lease.set(FILE, &needed.to_string()).err().and_then(|error| failed(&error)),
    }
}

/// The current value, and the value that the kernel needs, in kilobytes.
fn kilobytes(host: &Host) -> Result<(u64, u64), HostError> {
    let memory_bytes = host.machine()?.memory_bytes;
    Ok((host.required_number(FILE)?, needed_kilobytes(memory_bytes >> 10)))
}

/// Restores the reserve, and returns a sentence if that failed.
pub(super) fn put_back(lease: Lease) -> Option<String> {
    let unlike = |report: &Report| report.has_failed() || report.foreign().next().is_some();
    match lease.restore() {
        Ok(report) => unlike(&report).then(|| report.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// The square root of 16 times low memory, in kilobytes (mm/page_alloc.c, `calculate_min_free_kbytes`).
fn needed_kilobytes(memory_kilobytes: u64) -> u64 {
    (memory_kilobytes.saturating_mul(16)).isqrt().clamp(128, 262_144)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_grows_with_the_square_root_of_memory() {
        // The table in the kernel's comment has 8M for 4G and 16M for 16G.
        assert_eq!(needed_kilobytes(4 << 20), 8192);
        assert_eq!(needed_kilobytes(16 << 20), 16384);
        assert_eq!((needed_kilobytes(0), needed_kilobytes(u64::MAX)), (128, 262_144));
    }
}
