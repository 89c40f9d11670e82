//! [`attached_range`]: the range of addresses that shmat(2) replaces.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

use policy::size::PageSize;

use super::permission::if_permitted;
use super::ptrace::Tid;

/// Where a segment of shared memory would be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedRange {
    /// From the first address to the second.
    Range(u64, u64),
    /// Nowhere: there is no such segment.
    Nowhere,
    /// Its length is not known: the task has another IPC namespace, or the segment may not be read.
    Unknown,
}

/// The range that a segment occupies if a task attaches it at `address`. With SHM_RND the kernel rounds the address down;
/// without, it refuses an unaligned address (`do_shmat`, ipc/shm.c).
pub fn attached_range(task: Tid, segment: i32, address: u64, base: PageSize) -> io::Result<AttachedRange> {
    let namespace = |process: &str| if_permitted(fs::read_link(format!("/proc/{process}/ns/ipc")).map(Some));
    let (own, of_task) = (namespace("self")?, namespace(&task.to_string())?);
    if own.is_none() || own != of_task {
        return Ok(AttachedRange::Unknown);
    }
    let start = base.align_down(address);
    Ok(match segment_bytes(segment) {
        Ok(bytes) => {
            let end = start.checked_add(bytes).and_then(|end| base.align_up(end));
            end.map_or(AttachedRange::Nowhere, |end| AttachedRange::Range(start, end))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)) => AttachedRange::Nowhere,
        Err(_) => AttachedRange::Unknown,
    })
}

fn segment_bytes(segment: i32) -> io::Result<u64> {
    let mut reported = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: shmctl writes one shmid_ds to the given place, or fails.
    if unsafe { libc::shmctl(segment, libc::IPC_STAT, reported.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure is plain numbers, was zeroed before, and shmctl has filled it.
    Ok(unsafe { reported.assume_init() }.shm_segsz as u64)
}
