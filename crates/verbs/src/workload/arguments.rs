//! Checks of arguments, shared by the workloads: sizes that fit the machine, counts and shares.

use policy::size::format_bytes;
use workloads::memory::{base_page, obtainable_bytes};

use super::WorkloadError;
pub use crate::words::parse_size as size;

/// Checks that a length is a positive multiple of `unit` bytes (named `unit_name` in messages).
pub fn multiple(option: &'static str, bytes: u64, unit: u64, unit_name: &str) -> Result<usize, WorkloadError> {
    let wrong = |expected: String| WorkloadError::Argument { option, expected, found: bytes.to_string() };
    if bytes == 0 || !bytes.is_multiple_of(unit) {
        return Err(wrong(format!("a positive multiple of {unit} bytes ({unit_name})")));
    }
    usize::try_from(bytes).map_err(|_| wrong(format!("at most {} bytes", usize::MAX)))
}

/// Checks that a length is a multiple of the base page size.
pub fn whole_pages(option: &'static str, bytes: u64) -> Result<usize, WorkloadError> {
    multiple(option, bytes, base_page().bytes(), "the base page")
}

/// Checks that a count is at least `least`.
pub fn at_least(option: &'static str, least: u64, count: u64) -> Result<u64, WorkloadError> {
    if count >= least {
        return Ok(count);
    }
    Err(WorkloadError::Argument { option, expected: format!("at least {least}"), found: count.to_string() })
}

/// Checks that a share is above 0 and at most 1.
pub fn share(option: &'static str, share: f64) -> Result<f64, WorkloadError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(share);
    }
    Err(WorkloadError::Argument { option, expected: "a share above 0 and up to 1".into(), found: share.to_string() })
}

/// Refuses a workload that needs more memory than the machine can provide: the OOM killer would kill it or another process.
/// If the kernel does not report available memory, the workload is allowed.
pub fn room(option: &'static str, needed_bytes: u128) -> Result<(), WorkloadError> {
    match obtainable_bytes() {
        Some(obtainable) if needed_bytes > u128::from(obtainable) => Err(WorkloadError::Room {
            option,
            needed: u64::try_from(needed_bytes).map_or_else(|_| format!("{needed_bytes} bytes"), format_bytes),
            obtainable: format_bytes(obtainable),
        }),
        _ => Ok(()),
    }
}
