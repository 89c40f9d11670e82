//! A pidfd: one process, even if its PID is reused (pidfd_open(2), since Linux 5.3).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A pidfd.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// The process that currently has this PID.
    ///
    /// # Errors
    /// There is none (ESRCH), or the kernel has no pidfds (ENOSYS).
    pub fn open(pid: u32) -> io::Result<PidFd> {
        // SAFETY: pidfd_open takes two numbers and returns a descriptor, or fails.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and it has no other owner.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }))
    }

    /// Whether the process has ended. Before that its PID cannot be reused.
    pub fn has_ended(&self) -> bool {
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// The descriptor, for system calls.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_ends_is_told() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let held = PidFd::open(child.id()).unwrap();
        assert!(!held.has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(held.has_ended());
        assert!(PidFd::open(child.id()).is_err());
    }
}
