// SPDX-License-Identifier: GPL-2.0-or-later
//! The time that all processes of a recording share.

/// Nanoseconds since some moment before the machine began: `CLOCK_MONOTONIC`, which no processor sees going back.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is there since Linux 2.6, and is written where it is asked to be.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
