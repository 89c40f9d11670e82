//! A process between pagelab and a program, which ensures that no process started by the program outlives it or pagelab.
//!
//! A program may start processes, and these may start others. This process is their subreaper
//! (PR_SET_CHILD_SUBREAPER): every orphan becomes its child, so in the end it can reach all of them, and wait(2)
//! reports when none is left (ECHILD). There are two kinds:
//!
//! * a helper's ([`insert_subreaper`]): when the helper has ended, when pagelab is dead, or when it receives [`END`], it
//!   kills the remaining processes and ends with the helper's status. Helpers are not traced.
//! * a tree's ([`Subreaper`]): it ends when the tree has ended. It kills the tree when pagelab is dead, when pagelab
//!   requests it, or when the root's time limit expires. It publishes its state in memory that the tracer can read. An
//!   untraced tree stays in pagelab's process group, and may outlive the subreaper on request ([`Subreaper::dismiss`]).
//!
//! # Why killing terminates
//! Processes that fork faster than they are killed still end:
//!
//! * Traced ones: a new task does not run its first instruction until the tracer resumes it, and once the shared state says
//!   that the tree is to end, the tracer kills it instead. A killed task creates no further task (fork checks for signals
//!   last, `copy_process` in kernel/fork.c). So each living task adds at most one more.
//! * Helpers have a process group of their own. A signal to a group cannot interleave with a fork (both hold `tasklist_lock`).
//! * A process that left its group, or its tracer (CLONE_UNTRACED), is killed each time it becomes a child of the
//!   subreaper. Its descendants survive only as long as they win this race every time, so eventually they lose.
//!
//! If [`NO_DEATH_TIMEOUT`] passes without any death, the remaining processes will not die: they wait in the kernel and ignore
//! signals, their cgroup is frozen, or they belong to another user. Then the subreaper ends without them.
//!
//! A subreaper is a fork of a program that may have other threads, so it makes only system calls and does not allocate.
//! It closes every descriptor at once, so that it holds neither a program's output nor the lock of a lease open.

mod helper;
mod reaping;
mod shared_status;
mod tree;

use std::io;
use std::time::Duration;

pub use helper::insert_subreaper;
pub use shared_status::{is_ending, monotonic_ns};
pub use tree::{RootOutcome, Subreaper};

/// Asks a subreaper to kill everything and end.
pub const END: libc::c_int = libc::SIGTERM;

/// How long a subreaper keeps killing while no process dies.
pub const NO_DEATH_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes this process a subreaper with every signal blocked, and forks. Returns the child's PID in the subreaper, and
/// `None` in the child, whose signal mask is the original one.
///
/// # Safety
/// As for [`insert_subreaper`].
unsafe fn fork_below(pagelab: libc::pid_t) -> io::Result<Option<libc::pid_t>> {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // While SIGCHLD is ignored, children cannot be waited for.
        let on_child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, END))?;
        if libc::getppid() != pagelab {
            libc::_exit(libc::EXIT_FAILURE); // pagelab died before the line above
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

fn check(result: libc::c_int) -> io::Result<()> {
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
        unsafe { command.pre_exec(move || insert_subreaper(here)) };
        command
    }

    fn status(line: &str) -> ExitStatus {
        below_subreaper(line).status().unwrap()
    }

    fn exists(id: &str) -> bool {
        std::path::Path::new("/proc").join(id.trim()).exists()
    }

    #[test]
    fn the_subreaper_exits_with_the_status_of_its_helper() {
        assert_eq!(status("exit 7").code(), Some(7));
        assert_eq!(status("kill -SEGV $$").signal(), Some(libc::SIGSEGV));
        assert_eq!(status("kill -KILL $$").signal(), Some(libc::SIGKILL));
        assert_eq!(below_subreaper("echo text").output().unwrap().stdout, b"text\n", "it keeps no output open");
        let mut missing = Command::new("/no/such/program");
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { missing.pre_exec(move || insert_subreaper(here)) };
        assert_eq!(missing.status().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// How a daemon escapes: a session of its own, and no parent.
    const DAEMON: &str = "setsid sh -c 'sleep 1000 >/dev/null & echo $!; exec >/dev/null; wait' & ";

    #[test]
    fn no_process_outlives_the_helper() {
        // The substitution ends when the daemon has closed its output.
        let output = below_subreaper(&format!("echo $({DAEMON})")).output().unwrap();
        let id = String::from_utf8(output.stdout).unwrap();
        assert!(!id.trim().is_empty() && !exists(&id), "{id}");
    }

    #[test]
    fn a_subreaper_that_is_asked_to_end_kills_every_process() {
        use std::io::{BufRead, BufReader};
        let since = Instant::now();
        let mut subreaper = below_subreaper(&format!("{DAEMON} sleep 1000")).stdout(Stdio::piped()).spawn().unwrap();
        let mut id = String::new();
        BufReader::new(subreaper.stdout.take().unwrap()).read_line(&mut id).unwrap();
        assert!(exists(&id));
        // SAFETY: a plain system call on a child that was not waited for.
        unsafe { libc::kill(subreaper.id() as libc::pid_t, END) };
        assert_eq!(subreaper.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!exists(&id) && since.elapsed() < Duration::from_secs(20));
    }
}
