// SPDX-License-Identifier: GPL-2.0-or-later
//! The clock that all processes of a recording share.

/// Nanoseconds of `CLOCK_MONOTONIC`, which never runs backwards on any processor.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists since Linux 2.6, and the result is written to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
