//! Grows the heap by moving the program break, as allocators do, and shrinks it again.

use std::io;

use super::fork::threads_of_this_process;
use super::{ForkError, base_page};

/// Why the heap could not be grown and shrunk.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// The process has other threads, one of which may move the break in the meantime.
    #[error("expected a process with one thread before the break is moved, found {threads}")]
    Threads { threads: usize },
    /// The number of threads is not known.
    #[error(transparent)]
    Unknown(#[from] ForkError),
    #[error("cannot move the program break by {bytes} bytes: {source}; raise `ulimit -d`, or fewer bytes")]
    Refused {
        /// Requested change in bytes.
        bytes: i64,
        /// The error of sbrk.
        source: io::Error,
    },
}

/// Repeats `times` times: grows the heap by `bytes` (sbrk(2)), writes `value` times the page's index into each new base page, adds
/// up the values read back, and moves the break back. Returns the sum of all values. Refused if other threads exist. musl's sbrk
/// always refuses.
pub fn grow_and_shrink_heap(times: u64, bytes: u32, value: u64) -> Result<u64, HeapError> {
    let threads = threads_of_this_process()?;
    if threads != 1 {
        return Err(HeapError::Threads { threads });
    }
    (0..times).try_fold(0u64, |sum, _| {
        let start = move_break(i64::from(bytes))?;
        // SAFETY: sbrk has just returned these bytes. This is the only thread and starts no other one here, so nothing else moves
        // the break or uses the bytes.
        let of_pages = unsafe { write_and_add_up(start, bytes, value) };
        move_break(-i64::from(bytes))?;
        Ok(sum.wrapping_add(of_pages))
    })
}

/// Writes `value` times the page's index into each base page and adds up the values read back.
///
/// # Safety
/// The `bytes` bytes from `start` on are mapped, writable, and not used by anything else.
unsafe fn write_and_add_up(start: *mut u8, bytes: u32, value: u64) -> u64 {
    // Begins at the first aligned word, because the break may have any alignment.
    let first = start.align_offset(align_of::<u64>());
    let offsets = (first..(bytes as usize).saturating_sub(7)).step_by(base_page().bytes() as usize);
    offsets.zip(1u64..).fold(0, |sum, (offset, page)| {
        // SAFETY: the word is aligned and inside the bytes that the caller guarantees.
        sum.wrapping_add(unsafe {
            let word = start.add(offset).cast::<u64>();
            word.write_volatile(value.wrapping_mul(page));
            word.read_volatile()
        })
    })
}

/// Moves the break; returns its old position.
fn move_break(bytes: i64) -> Result<*mut u8, HeapError> {
    let refused = |source| HeapError::Refused { bytes, source };
    let increment =
        libc::intptr_t::try_from(bytes).map_err(|_| refused(io::Error::from(io::ErrorKind::InvalidInput)))?;
    // SAFETY: the only thread holds no reference to memory above the break. The bytes given back are those that were taken, since
    // nothing was allocated in between.
    let before = unsafe { libc::sbrk(increment) };
    if before.addr() == usize::MAX { Err(refused(io::Error::last_os_error())) } else { Ok(before.cast()) }
}
