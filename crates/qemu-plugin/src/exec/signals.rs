// SPDX-License-Identifier: GPL-2.0-or-later
//! Signals between one program and the next.
//!
//! QEMU catches a signal, remembers it and delivers it to the program when the current call returns. A remembered signal would be
//! lost when another QEMU replaces this one. So all signals are blocked from the beginning of `execve` on, and the kernel keeps
//! them pending until the next QEMU has begun. Whether QEMU already remembers a signal shows in what it blocks in the meantime:
//! it blocks every signal (`host_signal_handler`, linux-user/signal.c), while a program that blocks all its signals leaves those
//! of the C library unblocked (sigprocmask(2)).

use std::mem::size_of;

/// The signals that the C library reserves, 32 and 33, as bits of a mask.
const LIBC_SIGNALS: u64 = 1 << 31 | 1 << 32;

/// Keeps all signals blocked until it is dropped.
#[derive(Debug)]
pub struct Blocked {
    before: u64,
}

impl Blocked {
    /// Blocks all signals that can be blocked.
    pub fn all() -> Blocked {
        Blocked { before: set(u64::MAX) }
    }

    /// The signals that were blocked before.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Whether QEMU remembers a signal that the program must get before its next call.
    pub fn qemu_holds_signal(&self) -> bool {
        self.before & LIBC_SIGNALS == LIBC_SIGNALS
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Blocks exactly these signals for this thread; returns those that were blocked before.
pub fn set(signals: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const signals, &raw mut before);
    // SAFETY: the kernel reads and writes a mask of this size. The C library's call would leave out its own signals.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>()) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restores_the_signal_mask() {
        let unstoppable = 1u64 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        let blocked = Blocked::all();
        let before = blocked.before();
        assert_eq!(set(u64::MAX), !unstoppable);
        drop(blocked);
        assert_eq!(set(before), before);
        // SAFETY: masks of this thread. This blocks all signals as a program does through the C library.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        }
        assert!(!Blocked::all().qemu_holds_signal());
        set(u64::MAX);
        assert!(Blocked::all().qemu_holds_signal());
        set(before);
    }
}
