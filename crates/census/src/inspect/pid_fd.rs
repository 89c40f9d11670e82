//! [`PidFd`]: one process, even if its PID is reused (pidfd_open(2), since Linux 5.3).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// include/uapi/linux/pidfd.h.
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;

/// A pidfd.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// The process that currently has this PID, or the thread with this number (since Linux 6.9). Fails with ESRCH where there is
    /// none, with EINVAL for a thread on an older kernel, and with ENOSYS without pidfds.
    pub fn open(pid: u32) -> io::Result<PidFd> {
        // Linux 6.9 reports ENOENT for a thread.
        match opened(pid, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => opened(pid, PIDFD_THREAD),
            result => result,
        }
    }

    /// Whether the process has ended. Before that its PID cannot be reused.
    pub fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// A copy of a descriptor of the process (pidfd_getfd(2), since Linux 5.6). It shares position and flags with the
    /// original. Fails with EBADF without such a descriptor, with ESRCH after the process's end, and with EPERM if this user
    /// may not trace it.
    pub fn copy_of(&self, descriptor: u32) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_getfd takes numbers and returns a descriptor, or fails.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), descriptor, 0) })
    }

    /// The descriptor, for system calls.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn opened(pid: u32, flags: libc::c_uint) -> io::Result<PidFd> {
    // SAFETY: pidfd_open takes two numbers and returns a descriptor, or fails.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) }).map(PidFd)
}

/// The descriptor that a system call has just made, or its error.
fn owned(made: libc::c_long) -> io::Result<OwnedFd> {
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(made as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn reports_a_process_that_has_exited() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let held = PidFd::open(child.id()).unwrap();
        assert!(!held.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(held.has_ended());
        assert!(PidFd::open(child.id()).is_err());
    }

    #[test]
    fn a_thread_has_a_pidfd_or_the_kernel_is_too_old() {
        let of_thread = || PidFd::open(nix::unistd::gettid().as_raw() as u32).map(|thread| !thread.has_ended());
        let is_running = std::thread::spawn(of_thread).join().unwrap();
        match is_running {
            Ok(is_running) => assert!(is_running),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "before Linux 6.9"),
        }
    }
}
