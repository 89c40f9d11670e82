//! A process between pagelab and a program, so that nothing of what the program starts outlives it or pagelab.
//!
//! A program may start processes of its own, and these again others. The process between is their subreaper (PR_SET_CHILD_SUBREAPER): whatever
//! loses its parent becomes its child, so that in the end all of them are within its reach, and that
//! nothing is left is what wait says to it (ECHILD). There are two of them:
//!
//! * a helper's ([`step_between`]): when the helper has ended, when pagelab is dead, or when it is told to
//!   ([`END`]), it kills what is left and ends as the helper did. Helpers are not traced.
//! * a tree's ([`Subreaper`]): it ends when the tree has ended. When pagelab is dead, when pagelab asks for it, or when
//!   the tree's root has had its time, it kills the tree. What it does is on a board that the tracer can read. A
//!   tree that is not traced stays in pagelab's process group, and may outlive it if asked to ([`Subreaper::dismiss`]).
//!
//! # Why killing comes to an end
//! Processes that fork faster than they are killed are killed all the same:
//!
//! * Traced ones: a new task is held before its first instruction until the tracer lets it go, and once the board
//!   says that the tree is to end the tracer kills instead. A task that was killed makes no further one (fork looks for
//!   signals last of all, `copy_process` in kernel/fork.c). So there is at most one more for each that lived.
//! * Helpers are a process group of their own, and to a group a signal is sent while no fork can come in between (both
//!   hold `tasklist_lock`).
//! * What left its group, or its tracer (CLONE_UNTRACED), is killed again and again as it becomes the subreaper's child. It
//!   has to win every one of these races, and loses one of them.
//!
//! What does not die while [`PATIENCE`] passes without any death is not going to: it waits in the kernel without hearing signals, its
//! cgroup is frozen, or it is another user's. Then the subreaper ends without it.
//!
//! A subreaper is a fork of a program that may have other threads, so it makes only system calls, and allocates
//! nothing. It closes every descriptor at once: it must keep neither a program's output open nor the lock of
//! a lease.

mod board;
mod helper;
mod reaping;
mod tree;

use std::io;
use std::time::Duration;

pub use board::{is_ending, monotonic_ns};
pub use helper::step_between;
pub use tree::{Root, Subreaper};

/// What tells a subreaper to kill everything and end.
pub const END: libc::c_int = libc::SIGTERM;

/// How long a subreaper goes on killing when nothing dies.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Makes this process a subreaper with every signal blocked, and forks: returns the child in the subreaper, and `None` in the
/// child, whose signals are as before.
///
/// # Safety
/// As for [`step_between`].
unsafe fn split(pagelab: libc::pid_t) -> io::Result<Option<libc::pid_t>> {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // Where it is ignored, children are not waited for.
        let on_child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        done(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        done(libc::prctl(libc::PR_SET_PDEATHSIG, END))?;
        if libc::getppid() != pagelab {
            libc::_exit(libc::EXIT_FAILURE); // it died before the line above
        }
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::signal(libc::SIGCHLD, on_child);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(None)
            }
            child => Ok(Some(child)),
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell under a subreaper.
    fn below_subreaper(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { command.pre_exec(move || step_between(here)) };
        command
    }

    fn status(line: &str) -> ExitStatus {
        below_subreaper(line).status().unwrap()
    }

    fn exists(id: &str) -> bool {
        std::path::Path::new("/proc").join(id.trim()).exists()
    }

    #[test]
    fn the_subreaper_ends_as_its_client() {
        assert_eq!(status("exit 7").code(), Some(7));
        assert_eq!(status("kill -SEGV $$").signal(), Some(libc::SIGSEGV));
        assert_eq!(status("kill -KILL $$").signal(), Some(libc::SIGKILL));
        assert_eq!(below_subreaper("echo said").output().unwrap().stdout, b"said\n", "and keeps no output open");
        let mut missing = Command::new("/no/such/program");
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { missing.pre_exec(move || step_between(here)) };
        assert_eq!(missing.status().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// A daemon's way to get out of sight: a session of its own, and no parent.
    const HIDES: &str = "setsid sh -c 'sleep 1000 >/dev/null & echo $!; exec >/dev/null; wait' & ";

    #[test]
    fn nothing_outlives_the_client() {
        let output = below_subreaper(&format!("{HIDES} sleep 0.3")).output().unwrap();
        let id = String::from_utf8(output.stdout).unwrap();
        assert!(!id.trim().is_empty() && !exists(&id), "{id}");
    }

    #[test]
    fn a_subreaper_that_is_told_to_end_leaves_nothing() {
        use std::io::{BufRead, BufReader};
        let since = Instant::now();
        let mut subreaper = below_subreaper(&format!("{HIDES} sleep 1000")).stdout(Stdio::piped()).spawn().unwrap();
        let mut id = String::new();
        BufReader::new(subreaper.stdout.take().unwrap()).read_line(&mut id).unwrap();
        assert!(exists(&id));
        // SAFETY: a plain system call on a child that was not waited for.
        unsafe { libc::kill(subreaper.id() as libc::pid_t, END) };
        assert_eq!(subreaper.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!exists(&id) && since.elapsed() < Duration::from_secs(20));
    }
}
