//! [`accessed`]: how much of each mapping of a process was accessed.

use std::fs::File;
use std::io::{self, BufReader};

use crate::CensusError;
use crate::smaps;

/// The mappings of a process as `(first address, address after the last, bytes)`, with the bytes that were accessed since
/// `/proc/PID/clear_refs` was written.
///
/// # Errors
/// smaps cannot be read or understood.
pub fn accessed(pid: u32) -> Result<Vec<(u64, u64, u64)>, CensusError> {
    let path = format!("/proc/{pid}/smaps");
    let failed = |error: io::Error| CensusError::io(pid, &path, error);
    let text = BufReader::new(File::open(&path).map_err(failed)?);
    let mut found = Vec::new();
    smaps::read(text, &path, failed, |entry| found.push((entry.vma.start, entry.vma.end, entry.referenced_bytes())))?;
    Ok(found)
}
