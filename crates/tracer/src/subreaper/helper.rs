//! The subreaper of a helper.

use std::io;

use super::reaping::{Reaped, kill_all, reap, wait_for_signal};
use super::{END, done, split};
use crate::child;

/// Splits a process that is about to execute its program: this one stays as the subreaper, and the function
/// returns in a child of it, which leads a process group of its own. `pagelab` is the process that both shall not
/// outlive.
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
                // It fails where the process leads a session, and so a group, already.
                libc::setpgid(0, 0);
                done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            }
            Some(helper) => watch_helper(helper),
        }
    }
}

/// The life of a helper's subreaper, with every signal blocked.
///
/// # Safety
/// As for [`step_between`].
unsafe fn watch_helper(helper: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        child::close_from(0);
        loop {
            // A group that has lost its leader keeps its number from being given again only while it has members.
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
