//! What a tree's subreaper writes and pagelab reads, in memory that both have.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// On the board: the root has ended by itself.
pub(super) const ROOT_ENDED: u32 = 1;
/// On the board: the subreaper has killed the root, or never had one.
pub(super) const ROOT_KILLED: u32 = 2;

/// What a subreaper of a tree is doing, as the board says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Doing {
    /// Waiting.
    Waiting = 0,
    /// Killing, because it was told to or pagelab is dead.
    Ending = 1,
    /// Killing, because the root has had its time.
    TimeIsUp = 2,
}

/// What a tree's subreaper writes and pagelab reads, in memory that both have.
#[repr(C)]
pub(super) struct Board {
    /// A [`Doing`].
    pub doing: AtomicU32,
    /// Whether the tree has ended, and so `used` is written.
    pub ended: AtomicU32,
    /// Whether something would not die.
    pub stuck: AtomicU32,
    /// What all processes of the tree used that somebody waited for.
    pub used: libc::rusage,
    /// When the subreaper saw the root's end, in nanoseconds of CLOCK_MONOTONIC.
    pub root_end_ns: AtomicU64,
    /// How it ended, as wait(2) has it.
    pub root_status: AtomicI32,
    /// [`ROOT_ENDED`] once these two are written, [`ROOT_KILLED`] where they never will be; a futex.
    pub root_ended: AtomicU32,
}

thread_local! {
    /// The board of the tree that this thread traces.
    pub(super) static BOARD: Cell<Option<NonNull<Board>>> = const { Cell::new(None) };
}

/// Whether the tree that this thread traces is being killed.
pub fn is_ending() -> bool {
    // SAFETY: the board is mapped for as long as it stands there.
    BOARD.get().is_some_and(|board| unsafe { board.as_ref() }.doing.load(Ordering::SeqCst) != Doing::Waiting as u32)
}

pub(super) fn map_board() -> io::Result<NonNull<Board>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; zeros are a board.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Board>(), protection, flags, -1, 0) };
    NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)
}

/// CLOCK_MONOTONIC in nanoseconds, the same in every process.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes what became of the root, and wakes who waits for that.
///
/// # Safety
/// The board is mapped.
pub(super) unsafe fn tell_of_root(board: *mut Board, what: u32) {
    // SAFETY: as promised.
    unsafe {
        (*board).root_ended.store(what, Ordering::SeqCst);
        libc::syscall(libc::SYS_futex, (*board).root_ended.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX);
    }
}
