//! Waits for the children of a subreaper, and kills them.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{END, NO_DEATH_TIMEOUT};

/// Interval at which surviving processes are killed again.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(20);

/// Bytes of the list of children that are read at a time.
pub(super) const LIST_BYTES: usize = 4096;

/// The result of waiting for children.
pub(super) enum Reaped {
    /// The watched child has ended, with this status. There may be others.
    Watched(libc::c_int),
    /// Children are left, and none of them has ended.
    Others,
    /// No child is left.
    Last,
}

/// Reaps the children that have ended, until one of them is the watched one. `watched` is called for each child before it is
/// reaped.
///
/// # Safety
/// Called in the subreaper only, a process of one thread that shares nothing with its parent but the status.
pub(super) unsafe fn reap(watched: impl Fn(libc::pid_t) -> bool) -> Reaped {
    // SAFETY: the structures are live local variables; a child that was not waited for has its id.
    unsafe {
        loop {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            // The only error is ECHILD: signals are blocked, so nothing interrupts.
            if libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == -1 {
                return Reaped::Last;
            }
            let ended = info.si_pid();
            if ended == 0 {
                return Reaped::Others;
            }
            let is_watched = watched(ended);
            let mut status = 0;
            libc::waitpid(ended, &raw mut status, libc::__WALL);
            if is_watched {
                return Reaped::Watched(status);
            }
        }
    }
}

/// Waits for the end of a child, for [`END`], or until the time `until`. Returns the signal; `None` on timeout.
///
/// # Safety
/// Called in the subreaper only, where every signal is blocked.
pub(super) unsafe fn wait_for_signal(until: Option<Instant>) -> Option<libc::c_int> {
    // SAFETY: the structures are live local variables.
    let signal = unsafe {
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
        libc::sigaddset(&raw mut wanted, END);
        match until {
            None => libc::sigwaitinfo(&raw const wanted, std::ptr::null_mut()),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let left = libc::timespec {
                    tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                };
                libc::sigtimedwait(&raw const wanted, std::ptr::null_mut(), &raw const left)
            }
        }
    };
    (signal > 0).then_some(signal)
}

/// Kills the children, and the processes that become children as a result, until none is left. Gives up if none of them
/// may be killed (a setuid program of another user), and after [`NO_DEATH_TIMEOUT`] without a death. Returns whether none is
/// left. (A kernel without CONFIG_PROC_CHILDREN lists no children; a tree's tracer kills them anyway.)
///
/// # Safety
/// Called in the subreaper only, a process of one thread that shares nothing with its parent but the status.
pub(super) unsafe fn kill_all() -> bool {
    // SAFETY: the children are this process's own and were not waited for, so the ids are theirs.
    unsafe {
        let last_death = Cell::new(Instant::now());
        let died = |_| {
            last_death.set(Instant::now());
            false
        };
        loop {
            if matches!(reap(died), Reaped::Last) {
                return true;
            }
            let (mut killed, mut refused) = (false, false);
            for_each_child(|child| match libc::kill(child, libc::SIGKILL) {
                0 => killed = true,
                _ => refused = true,
            });
            if refused && !killed || last_death.get().elapsed() >= NO_DEATH_TIMEOUT {
                return false;
            }
            wait_for_signal(Instant::now().checked_add(KILL_AGAIN));
        }
    }
}

/// Calls a function for each PID in /proc/thread-self/children, if the kernel provides that list.
///
/// # Safety
/// Called in the subreaper only, a process of one thread that shares nothing with its parent but the status.
pub(super) unsafe fn for_each_child(mut each: impl FnMut(libc::pid_t)) {
    // SAFETY: the name is a C string, the buffer is live and its length is given.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list == -1 {
            return;
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
                return;
            }
        }
    }
}
