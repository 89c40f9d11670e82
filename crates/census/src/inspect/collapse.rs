//! Asking the kernel to collapse memory of another process: `process_madvise(MADV_COLLAPSE)` (Linux 6.1).
//!
//! It changes how the memory is mapped, and never what it holds. It cannot be undone: only the process itself, or reclaim, splits
//! what was collapsed.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use policy::inspect::{Collapsed, Region, Window};
use policy::size::PageSize;

use super::error::InspectError;
use super::held::Held;
use super::identity::Identity;
use crate::CensusError;

/// The advice (include/uapi/asm-generic/mman-common.h).
const MADV_COLLAPSE: libc::c_int = 25;

/// Collapses what could be larger in these regions of a process, slot by slot. Where the windows of a region are known,
/// only those are asked for that have pages below the size: the others have none, or nothing may be there (EINVAL).
///
/// # Errors
/// The process is gone, or is another one than was inspected. What the kernel refuses is no error: it stands in the answer.
pub fn collapse(
    pid: u32,
    started_ticks: u64,
    regions: &[&Region],
    leaf: PageSize,
) -> Result<Vec<Collapsed>, InspectError> {
    let process = Held::open(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => InspectError::NoSuchProcess { pid },
        _ => CensusError::Io { path: format!("pidfd_open({pid})"), error }.into(),
    })?;
    // If what is held is the process that was inspected, its number was not given away before.
    if Identity::of(pid)?.started_ticks != started_ticks {
        return Err(InspectError::Replaced { pid });
    }
    Ok(regions.iter().map(|region| one(&process, region, leaf)).collect())
}

fn one(process: &Held, region: &Region, leaf: PageSize) -> Collapsed {
    let (mut asked_bytes, mut refused) = (0, BTreeMap::new());
    let began = Instant::now();
    for slot in slots(region, leaf) {
        asked_bytes += leaf.bytes();
        if let Err(error) = advise(process, slot, leaf.bytes()) {
            *refused.entry(error.raw_os_error().unwrap_or(0)).or_default() += 1;
        }
    }
    Collapsed { start: region.start, end: region.end, asked_bytes, took_s: began.elapsed().as_secs_f64(), refused }
}

/// The addresses of slots that are to be asked for.
fn slots(region: &Region, leaf: PageSize) -> Vec<u64> {
    let fits =
        |slot: &u64| *slot >= region.start && slot.checked_add(leaf.bytes()).is_some_and(|end| end <= region.end);
    if region.windows.is_empty() {
        let first = leaf.align_up(region.start).unwrap_or(u64::MAX);
        return (first..region.end).step_by(leaf.bytes() as usize).filter(fits).collect();
    }
    let has_smaller = |window: &&Window| window.base_bytes + window.folio_bytes + window.zero_bytes > 0;
    region.windows.iter().filter(has_smaller).map(|window| window.start).filter(fits).collect()
}

fn advise(process: &Held, start: u64, bytes: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes as usize };
    // SAFETY: the kernel reads one iovec, which lives during the call; its addresses are the other process's.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.descriptor(), &raw const range, 1, MADV_COLLAPSE, 0)
    };
    if advised < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
