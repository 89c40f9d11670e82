//! What shmat replaces.

use std::fs;
use std::io;
use std::mem::MaybeUninit;

use policy::size::PageSize;

use super::permission::if_shown;
use super::ptrace::Tid;

/// Where a segment of shared memory would be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// From the first address to the second.
    Range(u64, u64),
    /// Nowhere: there is no such segment.
    Nowhere,
    /// Its length is not known: the task has another IPC namespace, or the segment does not show it.
    Unknown,
}

/// Where a task attaches a segment whose first address it gives. The kernel rounds the address down with SHM_RND, and else
/// refuses one between pages (`do_shmat`, ipc/shm.c).
///
/// # Errors
/// The namespaces cannot be read.
pub fn place(task: Tid, segment: i32, address: u64, base: PageSize) -> io::Result<Place> {
    let namespace = |process: &str| if_shown(fs::read_link(format!("/proc/{process}/ns/ipc")).map(Some));
    let (own, of_task) = (namespace("self")?, namespace(&task.to_string())?);
    if own.is_none() || own != of_task {
        return Ok(Place::Unknown);
    }
    let start = base.align_down(address);
    Ok(match bytes(segment) {
        Ok(bytes) => {
            let end = start.checked_add(bytes).and_then(|end| base.align_up(end));
            end.map_or(Place::Nowhere, |end| Place::Range(start, end))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)) => Place::Nowhere,
        Err(_) => Place::Unknown,
    })
}

fn bytes(segment: i32) -> io::Result<u64> {
    let mut reported = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: shmctl writes one shmid_ds to the given place, or fails.
    if unsafe { libc::shmctl(segment, libc::IPC_STAT, reported.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the structure is plain numbers, was zeroed before, and shmctl has filled it.
    Ok(unsafe { reported.assume_init() }.shm_segsz as u64)
}
