//! [`SharedStatus`]: memory shared between a tree's subreaper, which writes it, and pagelab, which reads it.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// `root_ended`: the root has ended by itself.
pub(super) const ROOT_ENDED: u32 = 1;
/// `root_ended`: the subreaper has killed the root, or never started one.
pub(super) const ROOT_KILLED: u32 = 2;

/// What the subreaper of a tree is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum SubreaperState {
    /// It waits for the tree to end.
    Waiting = 0,
    /// It kills, because pagelab requested that or is dead.
    Ending = 1,
    /// It kills, because the root's time limit has expired.
    TimeIsUp = 2,
}

/// Memory shared between a tree's subreaper, which writes it, and pagelab, which reads it.
#[repr(C)]
pub(super) struct SharedStatus {
    /// A [`SubreaperState`].
    pub state: AtomicU32,
    /// Whether the tree has ended, so that `used` is valid.
    pub ended: AtomicU32,
    /// Whether a process did not die.
    pub stuck: AtomicU32,
    /// Resources of all processes of the tree that were waited for.
    pub used: libc::rusage,
    /// When the subreaper saw the root's end, in nanoseconds of CLOCK_MONOTONIC.
    pub root_end_ns: AtomicU64,
    /// Wait status of the root, as in wait(2).
    pub root_status: AtomicI32,
    /// A futex. [`ROOT_ENDED`] once the two fields above are valid, [`ROOT_KILLED`] if they never will be.
    pub root_ended: AtomicU32,
}

thread_local! {
    /// The status of the tree that this thread traces.
    pub(super) static TREE_STATUS: Cell<Option<NonNull<SharedStatus>>> = const { Cell::new(None) };
}

/// Whether the tree that this thread traces is being killed.
pub fn is_ending() -> bool {
    // SAFETY: the status is mapped for as long as `TREE_STATUS` points to it.
    TREE_STATUS
        .get()
        .is_some_and(|status| unsafe { status.as_ref() }.state.load(Ordering::SeqCst) != SubreaperState::Waiting as u32)
}

pub(super) fn map_shared() -> io::Result<NonNull<SharedStatus>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; zeros are a status.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<SharedStatus>(), protection, flags, -1, 0) };
    NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)
}

/// CLOCK_MONOTONIC in nanoseconds, the same in every process.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Publishes what happened to the root, and wakes the waiters.
///
/// # Safety
/// The status is mapped.
pub(super) unsafe fn publish_root(status: *mut SharedStatus, what: u32) {
    // SAFETY: as promised.
    unsafe {
        (*status).root_ended.store(what, Ordering::SeqCst);
        libc::syscall(libc::SYS_futex, (*status).root_ended.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX);
    }
}
