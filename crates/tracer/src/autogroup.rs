//! [`SessionWeight`]: the weight of a session's autogroup against those of other sessions (sched(7), "The autogroup
//! feature").
//!
//! setsid(2) gives a session an autogroup of its own, which ends with the last process of the session. So nothing has to be
//! restored.

use std::io;

use crate::child;

/// The weight of the autogroup of a program's own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionWeight {
    /// The weight of every new autogroup: nice 0.
    Usual,
    /// The top weight: nice -20.
    Top,
}

const FILE: &std::ffi::CStr = c"/proc/self/autogroup";
/// The top weight, as a nice value.
const TOP: &[u8] = b"-20";
/// Maximum number of writes while the kernel returns EAGAIN, because it accepts only ten writes a second from unprivileged
/// users.
const MAX_ATTEMPTS: u32 = 100;
static RETRY_INTERVAL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Makes the calling process the leader of a new session, whose autogroup has the given weight. Errors are those of setsid(2),
/// EPERM if the kernel refuses the weight (it needs CAP_SYS_NICE or a high RLIMIT_NICE), and ENOENT without autogroups. errno is
/// set as well.
///
/// # Safety
/// Only in a process that fork has just made.
pub unsafe fn begin_session(weight: SessionWeight) -> io::Result<()> {
    // SAFETY: a plain system call.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as the caller promises.
    unsafe { weigh_session(weight) }
}

/// Gives the autogroup of the calling process's own session the given weight.
///
/// # Safety
/// As for [`begin_session`].
pub unsafe fn weigh_session(weight: SessionWeight) -> io::Result<()> {
    if weight == SessionWeight::Usual {
        return Ok(());
    }
    // SAFETY: plain system calls on constants.
    unsafe {
        let file = libc::open(FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file == -1 {
            return Err(io::Error::last_os_error());
        }
        let mut written = write_top(file);
        for _ in 1..MAX_ATTEMPTS {
            if !matches!(&written, Err(error) if error.raw_os_error() == Some(libc::EAGAIN)) {
                break;
            }
            libc::nanosleep(&raw const RETRY_INTERVAL, std::ptr::null_mut());
            written = write_top(file);
        }
        libc::close(file);
        written
    }
}

/// # Safety
/// The descriptor is open.
unsafe fn write_top(file: libc::c_int) -> io::Result<()> {
    // SAFETY: the bytes are constant.
    let written = unsafe { libc::write(file, TOP.as_ptr().cast(), TOP.len()) };
    if written == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tries in a child whether this process may give a session of its own the top weight.
pub fn try_top_weight() -> io::Result<()> {
    // SAFETY: the closure makes system calls only, in a process that fork has just made.
    unsafe { child::call_in_child(|| begin_session(SessionWeight::Top)) }
}

/// Gives the calling thread a larger share of the processors than the program that it observes, where that is permitted (root). A
/// thread that reads what a program does must be faster than the program.
pub fn raise_thread_priority() {
    /// Ten times the weight of a thread without a niceness.
    const NICENESS: libc::c_int = -10;
    // SAFETY: changes the niceness of the calling thread only. A refusal leaves it as it was.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_top_weight_does_not_change_this_session() {
        let own = || std::fs::read_to_string("/proc/self/autogroup").ok();
        let before = own();
        let _ = try_top_weight();
        assert_eq!(own(), before);
    }
}
