//! [`insert_subreaper`] gives a helper process (a client, a probe, a preparation) a subreaper.

use std::io;

use super::reaping::{Reaped, kill_all, reap, wait_for_signal};
use super::{END, check, fork_below};
use crate::child;

/// Forks in a process that is about to execute its program. The calling process becomes the subreaper and does not return. The
/// function returns in its child, which leads a new process group. Neither outlives the process `pagelab`.
///
/// # Safety
/// Only in a process that fork has just made and that has one thread, as in `CommandExt::pre_exec`.
pub unsafe fn insert_subreaper(pagelab: libc::pid_t) -> io::Result<()> {
    // SAFETY: plain system calls; the child continues as the caller's process.
    unsafe {
        match fork_below(pagelab)? {
            None => {
                // This fails if the process leads a session, and thus already leads a group.
                libc::setpgid(0, 0);
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            }
            Some(helper) => watch_helper(helper),
        }
    }
}

/// Main loop of a helper's subreaper, with every signal blocked.
///
/// # Safety
/// As for [`insert_subreaper`].
unsafe fn watch_helper(helper: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        child::close_from(0);
        loop {
            // The group is killed before its leader is waited for: after that its id may be reused once the group has no members.
            let kill_group = |ended| {
                if ended == helper {
                    libc::kill(-helper, libc::SIGKILL);
                }
                ended == helper
            };
            if let Reaped::Watched(status) = reap(kill_group) {
                kill_all();
                child::exit_as(status);
            }
            if wait_for_signal(None) == Some(END) {
                libc::kill(-helper, libc::SIGKILL);
                libc::kill(helper, libc::SIGKILL);
                kill_all();
                child::exit_as(libc::SIGKILL);
            }
        }
    }
}
