//! A process between pagelab and a client, so that nothing of what the client starts outlives it or pagelab.
//!
//! A client may start processes of its own, and these again others. They are not traced, so a killed pagelab
//! would leave them behind. The minder is their subreaper: whatever loses its parent becomes the minder's
//! child, so that in the end all of them are within its reach. When the client has ended, when pagelab is
//! dead, or when it is told to (SIGTERM), the minder kills what is left and ends as the client did.
//!
//! It is a fork of a program that may have other threads, so it makes only system calls, and allocates
//! nothing. It closes every descriptor at once: it must keep neither the client's output open nor the lock of
//! a lease. Its CPU time, which wait4(2) reports, is that of all that it has waited for.

use std::io;

use crate::child;

/// What tells a minder to kill everything and end.
pub const END: libc::c_int = libc::SIGTERM;

/// Bytes that are read at a time of the list of children.
const LIST_BYTES: usize = 4096;

/// Splits a process that is about to execute its program: this one stays as the minder, and the function
/// returns in a child of it. `pagelab` is the process that both shall not outlive.
///
/// # Errors
/// Those of prctl(2) and fork(2).
///
/// # Safety
/// Only in a process that fork has just made and that has one thread, as in `CommandExt::pre_exec`.
pub unsafe fn step_between(pagelab: libc::pid_t) -> io::Result<()> {
    // SAFETY: plain system calls on memory of this function; the child goes on as the caller's process.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        done(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        done(libc::prctl(libc::PR_SET_PDEATHSIG, END))?;
        if libc::getppid() != pagelab {
            libc::_exit(libc::EXIT_FAILURE); // it died before the line above
        }
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            }
            client => mind(client),
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The life of the minder, with every signal blocked.
///
/// # Safety
/// As for [`step_between`].
unsafe fn mind(client: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        child::close_from(0);
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
        libc::sigaddset(&raw mut wanted, END);
        loop {
            if let Some(status) = reap_until(client) {
                kill_all();
                child::end_as(status);
            }
            if libc::sigwaitinfo(&raw const wanted, std::ptr::null_mut()) == END {
                if !kill_all() {
                    libc::kill(client, libc::SIGKILL);
                }
                child::end_as(libc::SIGKILL);
            }
        }
    }
}

/// Waits for all that has ended; the status of the client if it is among them.
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent.
unsafe fn reap_until(client: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a live local variable.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            ended if ended == client => return Some(status),
            ended if ended > 0 => {}
            _ => return None,
        }
    }
}

/// Kills children, and what becomes a child by that, until there is none, or none that may be killed (a
/// setuid program of another user). Says whether the kernel lists children at all (CONFIG_PROC_CHILDREN).
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent.
unsafe fn kill_all() -> bool {
    // SAFETY: the children are this process's own and were not waited for, so the ids are theirs.
    unsafe {
        loop {
            let mut killed = false;
            if !for_each_child(|child| killed |= libc::kill(child, libc::SIGKILL) == 0) {
                return false;
            }
            // The only error is ECHILD: signals are blocked, so nothing interrupts.
            if !killed || libc::waitpid(-1, std::ptr::null_mut(), 0) == -1 {
                return true;
            }
        }
    }
}

/// Calls a function for the ids in /proc/thread-self/children; says whether there is such a list.
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent.
unsafe fn for_each_child(mut each: impl FnMut(libc::pid_t)) -> bool {
    // SAFETY: the name is a C string, the buffer is live and its length is given.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list == -1 {
            return false;
        }
        let mut buffer = [0u8; LIST_BYTES];
        let mut id: libc::pid_t = 0;
        loop {
            let count = libc::read(list, buffer.as_mut_ptr().cast(), buffer.len());
            for byte in buffer.iter().take(usize::try_from(count).unwrap_or(0)) {
                match byte {
                    b'0'..=b'9' => id = id * 10 + libc::pid_t::from(byte - b'0'),
                    _ => each(std::mem::take(&mut id)),
                }
            }
            if count <= 0 {
                libc::close(list);
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell under a minder.
    fn minded(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { command.pre_exec(move || step_between(here)) };
        command
    }

    fn status(line: &str) -> ExitStatus {
        minded(line).status().unwrap()
    }

    fn exists(id: &str) -> bool {
        std::path::Path::new("/proc").join(id.trim()).exists()
    }

    #[test]
    fn the_minder_ends_as_its_client() {
        assert_eq!(status("exit 7").code(), Some(7));
        assert_eq!(status("kill -SEGV $$").signal(), Some(libc::SIGSEGV));
        assert_eq!(status("kill -KILL $$").signal(), Some(libc::SIGKILL));
        assert_eq!(minded("echo said").output().unwrap().stdout, b"said\n", "and keeps no output open");
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
        let output = minded(&format!("{HIDES} sleep 0.3")).output().unwrap();
        let id = String::from_utf8(output.stdout).unwrap();
        assert!(!id.trim().is_empty() && !exists(&id), "{id}");
    }

    #[test]
    fn a_minder_that_is_told_to_end_leaves_nothing() {
        use std::io::{BufRead, BufReader};
        let since = Instant::now();
        let mut minder = minded(&format!("{HIDES} sleep 1000")).stdout(Stdio::piped()).spawn().unwrap();
        let mut id = String::new();
        BufReader::new(minder.stdout.take().unwrap()).read_line(&mut id).unwrap();
        assert!(exists(&id));
        // SAFETY: a plain system call on a child that was not waited for.
        unsafe { libc::kill(minder.id() as libc::pid_t, END) };
        assert_eq!(minder.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!exists(&id) && since.elapsed() < Duration::from_secs(20));
    }
}
