// SPDX-License-Identifier: GPL-2.0-or-later
//! Signals while one program gives way to another.
//!
//! QEMU catches a signal, remembers it, and lets the program have it when its call returns; what it remembers would be lost when
//! another QEMU takes its place. So all are blocked from the beginning of `execve` on, and the kernel keeps what comes, until the
//! next QEMU has begun. Whether QEMU remembers one already is seen by what it blocks meanwhile: every signal of all (`host_signal_handler`,
//! linux-user/signal.c), while a program that blocks all its signals leaves those of the C library alone (sigprocmask(2)).

use std::mem::size_of;

/// Signals that the C library keeps for itself, by bits of a mask: 32 and 33.
const OF_LIBRARY: u64 = 1 << 31 | 1 << 32;

/// All signals are blocked until this is dropped.
#[derive(Debug)]
pub struct Blocked {
    before: u64,
}

impl Blocked {
    /// Blocks all that can be.
    pub fn all() -> Blocked {
        Blocked { before: set(u64::MAX) }
    }

    /// Those that were blocked before.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Whether QEMU has a signal that the program must get before it makes another call.
    pub fn one_waits(&self) -> bool {
        self.before & OF_LIBRARY == OF_LIBRARY
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Blocks these signals of this thread and no others; gives those that were blocked before.
pub fn set(signals: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const signals, &raw mut before);
    // SAFETY: the kernel reads and writes a mask of this size; the C library's call would leave its own signals out.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>()) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_as_they_were_afterwards() {
        let unstoppable = 1u64 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        let blocked = Blocked::all();
        let before = blocked.before();
        assert_eq!(set(u64::MAX), !unstoppable);
        drop(blocked);
        assert_eq!(set(before), before);
        // A program that blocks all its signals by the C library.
        // SAFETY: masks of this thread.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        }
        assert!(!Blocked::all().one_waits());
        set(u64::MAX);
        assert!(Blocked::all().one_waits());
        set(before);
    }
}
