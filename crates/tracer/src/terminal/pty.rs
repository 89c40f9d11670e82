//! [`Pty`]: a pseudo-terminal (pty(7)), the terminal of a command of another user.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::unistd::{Uid, fchown};

/// Both ends of a pseudo-terminal.
pub struct Pty {
    /// pagelab's end, non-blocking.
    pub ours: OwnedFd,
    /// The command's end, a terminal.
    pub command: OwnedFd,
}

impl Pty {
    /// Opens a pseudo-terminal whose terminal end belongs to the user. TIOCGPTPEER needs Linux 4.13.
    pub fn open(uid: u32) -> io::Result<Pty> {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: plain system calls; the number is live while the kernel reads it.
        unsafe {
            let ours = owned(libc::open(c"/dev/ptmx".as_ptr(), flags | libc::O_NONBLOCK))?;
            let unlocked: libc::c_int = 0;
            if libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) == -1 {
                return Err(io::Error::last_os_error());
            }
            let command = owned(libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
            fchown(&command, Some(Uid::from_raw(uid)), None)?;
            Ok(Pty { ours, command })
        }
    }
}

/// Wraps a new descriptor, or returns the kernel's error.
///
/// # Safety
/// The descriptor is new, or -1.
unsafe fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    match descriptor {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the caller guarantees that it is new, so it has no other owner.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}
