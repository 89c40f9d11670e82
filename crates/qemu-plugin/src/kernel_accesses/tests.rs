// SPDX-License-Identifier: GPL-2.0-or-later
use super::table::{NO, ROWS, Row};
use super::*;

/// Words by address, and strings of one length.
struct Words(&'static [(u64, u64)]);

impl GuestMemory for Words {
    fn read(&self, _address: u64, _to: &mut [u8]) -> usize {
        0
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.0.iter().find(|(at, _)| *at == address).map(|(_, word)| *word)
    }

    /// A word or its first half; there is no memory after it.
    fn half(&self, address: u64) -> Option<u32> {
        self.word(address).map(|word| word as u32)
    }

    fn text(&self, _address: u64) -> Vec<u8> {
        b"/a/path".to_vec()
    }
}

fn of(number: i64, arguments: [u64; 6], result: i64, words: &'static [(u64, u64)]) -> Vec<(u64, u64, bool)> {
    over(number, arguments, result, [words; 2])
}

/// The accesses of a call, with the memory before and after it.
fn over(
    number: i64,
    arguments: [u64; 6],
    result: i64,
    [before, after]: [&'static [(u64, u64)]; 2],
) -> Vec<(u64, u64, bool)> {
    let accesses = of_call(Abi::X86_64, number);
    let buffer_bytes = buffer_bytes(accesses, &arguments, &Words(before));
    let ranges = ranges(accesses, &arguments, buffer_bytes, result, &Words(after));
    ranges.iter().map(|range| (range.address, range.bytes, range.store)).collect()
}

#[test]
fn no_more_is_written_than_there_is_room_for() {
    // A size of 0 queries the size.
    assert_eq!(of(libc::SYS_fgetxattr, [3, 0x10, 0x20, 0, 0, 0], 99, &[]), [(0x10, 8, false)]);
    assert_eq!(of(libc::SYS_fgetxattr, [3, 0x10, 0x20, 200, 0, 0], 99, &[])[1], (0x20, 99, true));
    assert_eq!(of(libc::SYS_flistxattr, [3, 0x20, 0, 0, 0, 0], 99, &[]), []);
    // With MSG_TRUNC, the result is the length of what was sent.
    let truncated = libc::MSG_TRUNC as u64;
    assert_eq!(of(libc::SYS_recvfrom, [3, 0x1000, 10, truncated, 0, 0], 500, &[]), [(0x1000, 10, true)]);
    const WORDS: &[(u64, u64)] = &[(0x110, 0x200), (0x118, 1), (0x200, 0x6000), (0x208, 100)];
    let expected = [(0x100, 56, true), (0x200, 16, false), (0x6000, 100, true)];
    assert_eq!(of(libc::SYS_recvmsg, [3, 0x100, truncated, 0, 0, 0], 500, WORDS), expected);
}

#[test]
fn a_name_is_as_long_as_it_is_and_as_there_is_room_for() {
    let accept = [3, 0x1000, 0x2000, 0, 0, 0];
    let accept_accesses = |buffer_bytes, length| over(libc::SYS_accept, accept, 4, [buffer_bytes, length]);
    let length = (0x2000, 4, true);
    assert_eq!(accept_accesses(&[(0x2000, 128)], &[(0x2000, 16)]), [(0x1000, 16, true), length]);
    assert_eq!(accept_accesses(&[(0x2000, 16)], &[(0x2000, 110)]), [(0x1000, 16, true), length]);
    // No address is requested.
    assert_eq!(of(libc::SYS_accept, [3, 0, 0, 0, 0, 0], 4, &[]), []);
    const BEFORE: &[(u64, u64)] = &[(0x100, 0x4000), (0x108, 16)];
    const AFTER: &[(u64, u64)] = &[(0x100, 0x4000), (0x108, 110)];
    let touched = over(libc::SYS_recvmsg, [3, 0x100, 0, 0, 0, 0], 0, [BEFORE, AFTER]);
    assert_eq!(touched, [(0x100, 56, true), (0x4000, 16, true)]);
}

#[test]
fn wait_without_a_child_writes_nothing() {
    let wait = [-1i64 as u64, 0x10, libc::WNOHANG as u64, 0x20, 0, 0];
    assert_eq!(of(libc::SYS_wait4, wait, 0, &[]), []);
    assert_eq!(of(libc::SYS_wait4, wait, 77, &[]), [(0x10, 4, true), (0x20, 144, true)]);
    let wait = [0, 0, 0x10, libc::WNOHANG as u64, 0x20, 0];
    assert_eq!(of(libc::SYS_waitid, wait, 0, &[(0x10, 0)]), [(0x10, 28, true)]);
    let found = [(0x10, 28, true), (0x20, 144, true)];
    assert_eq!(of(libc::SYS_waitid, wait, 0, &[(0x10, libc::SIGCHLD as u64)]), found);
}

#[test]
fn a_read_writes_what_it_returns() {
    assert_eq!(of(libc::SYS_read, [3, 0x1000, 0x5000, 0, 0, 0], 0x123, &[]), [(0x1000, 0x123, true)]);
    assert_eq!(of(libc::SYS_read, [3, 0x1000, 0x5000, 0, 0, 0], 0, &[]), []);
    assert_eq!(of(libc::SYS_read, [3, 0x1000, 0x5000, 0, 0, 0], -4, &[]), []);
    assert_eq!(of(libc::SYS_write, [1, 0x1000, 7, 0, 0, 0], 7, &[]), [(0x1000, 7, false)]);
}

#[test]
fn a_call_that_fails_has_read_its_path() {
    assert_eq!(of(libc::SYS_stat, [0x10, 0x20, 0, 0, 0, 0], -2, &[]), [(0x10, 8, false)]);
    assert_eq!(of(libc::SYS_stat, [0x10, 0x20, 0, 0, 0, 0], 0, &[]), [(0x10, 8, false), (0x20, 144, true)]);
    assert_eq!(of(libc::SYS_stat, [0x10, 0x20, 0, 0, 0, 0], -14, &[]), []);
    // A null pointer is not accessed.
    assert_eq!(of(libc::SYS_prlimit64, [0, 3, 0, 0x40, 0, 0], 0, &[]), [(0x40, 16, true)]);
}

#[test]
fn touches_parts_up_to_the_result() {
    const WORDS: &[(u64, u64)] = &[(0x100, 0x4000), (0x108, 10), (0x110, 0x5000), (0x118, 10), (0x120, 1), (0x128, 1)];
    let expected = [(0x100, 48, false), (0x4000, 10, true), (0x5000, 3, true)];
    assert_eq!(of(libc::SYS_readv, [3, 0x100, 3, 0, 0, 0], 13, WORDS), expected);
}

#[test]
fn a_message_has_a_name_parts_and_control_data() {
    const WORDS: &[(u64, u64)] = &[
        (0x100, 0x4000),
        (0x108, 16),
        (0x110, 0x200),
        (0x118, 1),
        (0x120, 0),
        (0x128, 99),
        (0x200, 0x6000),
        (0x208, 100),
    ];
    let expected = [(0x100, 56, true), (0x4000, 16, true), (0x200, 16, false), (0x6000, 5, true)];
    assert_eq!(of(libc::SYS_recvmsg, [3, 0x100, 0, 0, 0, 0], 5, WORDS), expected);
}

#[test]
fn no_call_has_two_rows() {
    for column in [|row: &Row| row.0, |row: &Row| row.1] {
        let mut numbers: Vec<i64> = ROWS.iter().map(column).filter(|number| *number != NO).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
    assert!(of_call(Abi::X86_64, NO).is_empty() && of_call(Abi::Generic, NO).is_empty());
}

/// The accesses of a call are among those that the types in the C library allow, on this machine.
#[test]
fn libc_agrees_on_this_machine() {
    let abi = if cfg!(target_arch = "x86_64") { Abi::X86_64 } else { Abi::Generic };
    let is = |number: i64, pointer: usize, stores: bool| {
        let touches = of_call(abi, number);
        let found = touches.iter().any(|touch| match touch {
            KernelAccess::Range { pointer: at, store, .. } => (*at, *store) == (pointer, stores),
            KernelAccess::Vector { array, store, .. } => (*array, *store) == (pointer, stores),
            KernelAccess::Message { header, store } => (*header, *store) == (pointer, stores),
        });
        assert!(found, "{number} {pointer} {stores}: {touches:?}");
    };
    for number in [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2] {
        is(number, 1, true);
    }
    for number in [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2] {
        is(number, 1, false);
    }
    for number in [libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_getdents64, libc::SYS_accept4] {
        is(number, 1, true);
    }
    for number in [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_connect, libc::SYS_bind, libc::SYS_openat] {
        is(number, 1, false);
    }
    for number in [libc::SYS_getcwd, libc::SYS_getrandom, libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_pipe2] {
        is(number, 0, true);
    }
    for (number, pointer, stores) in [
        (libc::SYS_newfstatat, 2, true),
        (libc::SYS_newfstatat, 1, false),
        (libc::SYS_fstat, 1, true),
        (libc::SYS_statx, 4, true),
        (libc::SYS_statfs, 1, true),
        (libc::SYS_fstatfs, 1, true),
        (libc::SYS_faccessat, 1, false),
        (libc::SYS_readlinkat, 2, true),
        (libc::SYS_chdir, 0, false),
        (libc::SYS_renameat2, 3, false),
        (libc::SYS_mkdirat, 1, false),
        (libc::SYS_unlinkat, 1, false),
        (libc::SYS_fchmodat, 1, false),
        (libc::SYS_utimensat, 2, false),
        (libc::SYS_getxattr, 2, true),
        (libc::SYS_fgetxattr, 2, true),
        (libc::SYS_listxattr, 1, true),
        (libc::SYS_ppoll, 0, true),
        (libc::SYS_pselect6, 3, true),
        (libc::SYS_epoll_pwait, 1, true),
        (libc::SYS_epoll_ctl, 3, false),
        (libc::SYS_getsockopt, 3, true),
        (libc::SYS_setsockopt, 3, false),
        (libc::SYS_getsockname, 1, true),
        (libc::SYS_socketpair, 3, true),
        (libc::SYS_nanosleep, 0, false),
        (libc::SYS_clock_nanosleep, 2, false),
        (libc::SYS_clock_gettime, 1, true),
        (libc::SYS_gettimeofday, 0, true),
        (libc::SYS_times, 0, true),
        (libc::SYS_setitimer, 2, true),
        (libc::SYS_rt_sigaction, 2, true),
        (libc::SYS_rt_sigprocmask, 2, true),
        (libc::SYS_sigaltstack, 1, true),
        (libc::SYS_wait4, 1, true),
        (libc::SYS_waitid, 2, true),
        (libc::SYS_prlimit64, 3, true),
        (libc::SYS_getrusage, 1, true),
        (libc::SYS_sched_getaffinity, 2, true),
        (libc::SYS_sendfile, 2, true),
        (libc::SYS_memfd_create, 0, false),
    ] {
        is(number, pointer, stores);
    }
}
