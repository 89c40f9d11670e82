//! Asks the kernel to collapse memory of another process: `process_madvise(MADV_COLLAPSE)` (Linux 6.1).
//!
//! This changes how the memory is mapped, but never its content. It cannot be undone: only the process itself, or reclaim, splits
//! collapsed memory.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use policy::inspect::{Collapsed, Region, Window};
use policy::size::PageSize;

use super::error::InspectError;
use super::identity::Identity;
use super::pid_fd::PidFd;
use crate::CensusError;

/// The advice (include/uapi/asm-generic/mman-common.h).
const MADV_COLLAPSE: libc::c_int = 25;

/// Collapses memory in these regions of a process that could be larger, slot by slot. Where the windows of a region are
/// known, only windows with pages below the size are requested: the other windows have no such pages, or may be empty
/// (EINVAL). A refusal by the kernel is no error; it is in the result.
pub fn collapse(
    pid: u32,
    started_ticks: u64,
    regions: &[&Region],
    leaf: PageSize,
) -> Result<Vec<Collapsed>, InspectError> {
    let process = PidFd::open(pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => InspectError::NoSuchProcess { pid },
        _ => CensusError::Io { path: format!("pidfd_open({pid})"), error }.into(),
    })?;
    // The PID may have been reused before the pidfd was opened.
    if Identity::of(pid)?.started_ticks != started_ticks {
        return Err(InspectError::Replaced { pid });
    }
    Ok(regions.iter().map(|region| one(&process, region, leaf)).collect())
}

fn one(process: &PidFd, region: &Region, leaf: PageSize) -> Collapsed {
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

/// The addresses of the slots to request.
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

fn advise(process: &PidFd, start: u64, bytes: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes as usize };
    // SAFETY: the kernel reads one iovec, which is valid during the call; its addresses are in the other process.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.descriptor(), &raw const range, 1, MADV_COLLAPSE, 0)
    };
    if advised < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
