//! The subreaper of a helper process.

use std::io;

use super::reaping::{Reaped, kill_all, reap, wait_for_signal};
use super::{END, done, split};
use crate::child;

/// Splits a process that is about to execute its program. The calling process stays as the subreaper, and the function
/// returns in its child, which leads a new process group. Neither outlives the process `pagelab`.
///
/// # Errors
/// Those of prctl(2) and fork(2).
///
/// # Safety
/// Only in a process that fork has just made and that has one thread, as in `CommandExt::pre_exec`.
pub unsafe fn step_between(pagelab: libc::pid_t) -> io::Result<()> {
    // SAFETY: plain system calls; the child goes on as the caller's process.
    unsafe {
        match split(pagelab)? {
            None => {
                // This fails if the process leads a session, and thus already leads a group.
                libc::setpgid(0, 0);
                done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            }
            Some(helper) => watch_helper(helper),
        }
    }
}

/// Main loop of a helper's subreaper, with every signal blocked.
///
/// # Safety
/// As for [`step_between`].
unsafe fn watch_helper(helper: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        child::close_from(0);
        loop {
            // The id of a group whose leader has ended stays reserved only while the group has members.
            let before = |ended| {
                if ended == helper {
                    libc::kill(-helper, libc::SIGKILL);
                }
                ended == helper
            };
            if let Reaped::Watched(status) = reap(before) {
                kill_all();
                child::end_as(status);
            }
            if wait_for_signal(None) == Some(END) {
                libc::kill(-helper, libc::SIGKILL);
                libc::kill(helper, libc::SIGKILL);
                kill_all();
                child::end_as(libc::SIGKILL);
            }
        }
    }
}
