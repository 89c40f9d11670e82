// SPDX-License-Identifier: GPL-2.0-or-later
//! The memory that the kernel accesses in each system call.
//!
//! Sources: the manual pages of the calls; for their numbers `arch/x86/entry/syscalls/syscall_64.tbl` and
//! `include/uapi/asm-generic/unistd.h`; for the sizes of structures `include/uapi`.

/// How a call accesses the memory that an argument points to.
#[derive(Clone, Copy, Debug)]
pub enum KernelAccess {
    /// One range.
    Range {
        /// Index of the argument that points to it.
        pointer: usize,
        length: Length,
        /// Whether the range is written.
        store: bool,
    },
    /// An array of `struct iovec` and its buffers, up to as many bytes as the call returns.
    Vector {
        /// Index of the argument that points to the array.
        array: usize,
        /// Index of the argument with the number of elements.
        count: usize,
        /// Whether the buffers are written.
        store: bool,
    },
    /// A `struct msghdr` with its buffers: name, control data, and an array of `struct iovec`.
    Message {
        /// Index of the argument that points to the header.
        header: usize,
        /// Whether the message is written.
        store: bool,
    },
}

/// The length of a range.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// This many bytes.
    Bytes(u64),
    /// The result times this many bytes.
    Result(u64),
    /// The result, capped by the argument with this index: the result may exceed the number of bytes copied.
    AtMost(usize),
    /// This many bytes if the result is positive (something was found).
    IfPositive(u64),
    /// The second number of bytes, if the 32-bit value that the argument points to is not 0.
    IfNonzero(usize, u64),
    /// The argument times this many bytes.
    Argument(usize, u64),
    /// The argument as a number of bits, rounded up to whole 64-bit words (`fd_set`).
    Bits(usize),
    /// The `socklen_t` that the argument points to, capped by its value before the call.
    SizeAt(usize),
    /// A string up to its terminating zero.
    Text,
}

use Length::{Argument, AtMost, Bits, Bytes, IfNonzero, IfPositive, Result, SizeAt, Text};

const fn load(pointer: usize, length: Length) -> KernelAccess {
    KernelAccess::Range { pointer, length, store: false }
}

const fn store(pointer: usize, length: Length) -> KernelAccess {
    KernelAccess::Range { pointer, length, store: true }
}

const fn vector(store: bool) -> [KernelAccess; 1] {
    [KernelAccess::Vector { array: 1, count: 2, store }]
}

/// A result that the kernel writes where one argument points. The next argument points to its length, which the kernel
/// reads and writes.
const fn sized_result(pointer: usize) -> [KernelAccess; 2] {
    [store(pointer, SizeAt(pointer + 1)), store(pointer + 1, Bytes(4))]
}

/// A call: its number on x86-64, its number in the generic table, and its accesses.
pub(super) type Row = (i64, i64, &'static [KernelAccess]);

/// No number: the table lacks the call, or has it in another row with other sizes.
pub(super) const NO: i64 = -1;

pub(super) const ROWS: &[Row] = &[
    // Input and output.
    (0, 63, &[store(1, Result(1))]),    // read
    (1, 64, &[load(1, Result(1))]),     // write
    (17, 67, &[store(1, Result(1))]),   // pread64
    (18, 68, &[load(1, Result(1))]),    // pwrite64
    (19, 65, &vector(true)),            // readv
    (20, 66, &vector(false)),           // writev
    (295, 69, &vector(true)),           // preadv
    (296, 70, &vector(false)),          // pwritev
    (327, 286, &vector(true)),          // preadv2
    (328, 287, &vector(false)),         // pwritev2
    (40, 71, &[store(2, Bytes(8))]),    // sendfile
    (22, NO, &[store(0, Bytes(8))]),    // pipe
    (293, 59, &[store(0, Bytes(8))]),   // pipe2
    (318, 278, &[store(0, Result(1))]), // getrandom
    // Polling.
    (7, NO, &[store(0, Argument(1, 8))]), // poll
    (271, 73, &[store(0, Argument(1, 8)), load(2, Bytes(16)), load(3, Bytes(8))]), // ppoll
    (23, NO, &[store(1, Bits(0)), store(2, Bits(0)), store(3, Bits(0)), load(4, Bytes(16))]), // select
    (270, 72, &[store(1, Bits(0)), store(2, Bits(0)), store(3, Bits(0)), load(4, Bytes(16)), load(5, Bytes(16))]), // pselect6
    // struct epoll_event is packed only on x86-64.
    (232, NO, &[store(1, Result(12))]),                    // epoll_wait
    (281, NO, &[store(1, Result(12)), load(4, Bytes(8))]), // epoll_pwait
    (NO, 22, &[store(1, Result(16)), load(4, Bytes(8))]),  // epoll_pwait
    (233, NO, &[load(3, Bytes(12))]),                      // epoll_ctl
    (NO, 21, &[load(3, Bytes(16))]),                       // epoll_ctl
    // Sockets.
    (42, 203, &[load(1, Argument(2, 1))]),                     // connect
    (49, 200, &[load(1, Argument(2, 1))]),                     // bind
    (43, 202, &sized_result(1)),                               // accept
    (288, 242, &sized_result(1)),                              // accept4
    (51, 204, &sized_result(1)),                               // getsockname
    (52, 205, &sized_result(1)),                               // getpeername
    (53, 199, &[store(3, Bytes(8))]),                          // socketpair
    (54, 208, &[load(3, Argument(4, 1))]),                     // setsockopt
    (55, 209, &sized_result(3)),                               // getsockopt
    (44, 206, &[load(1, Result(1)), load(4, Argument(5, 1))]), // sendto
    (45, 207, &[store(1, AtMost(2)), store(4, SizeAt(5)), store(5, Bytes(4))]), // recvfrom
    (46, 211, &[KernelAccess::Message { header: 1, store: false }]), // sendmsg
    (47, 212, &[KernelAccess::Message { header: 1, store: true }]), // recvmsg
    // Files. struct stat has 144 bytes on x86-64 and 128 elsewhere.
    (2, NO, &[load(0, Text)]),                                      // open
    (257, 56, &[load(1, Text)]),                                    // openat
    (437, 437, &[load(1, Text), load(2, Bytes(24))]),               // openat2
    (85, NO, &[load(0, Text)]),                                     // creat
    (319, 279, &[load(0, Text)]),                                   // memfd_create
    (4, NO, &[load(0, Text), store(1, Bytes(144))]),                // stat
    (6, NO, &[load(0, Text), store(1, Bytes(144))]),                // lstat
    (5, NO, &[store(1, Bytes(144))]),                               // fstat
    (NO, 80, &[store(1, Bytes(128))]),                              // fstat
    (262, NO, &[load(1, Text), store(2, Bytes(144))]),              // newfstatat
    (NO, 79, &[load(1, Text), store(2, Bytes(128))]),               // newfstatat
    (332, 291, &[load(1, Text), store(4, Bytes(256))]),             // statx
    (137, 43, &[load(0, Text), store(1, Bytes(120))]),              // statfs
    (138, 44, &[store(1, Bytes(120))]),                             // fstatfs
    (21, NO, &[load(0, Text)]),                                     // access
    (269, 48, &[load(1, Text)]),                                    // faccessat
    (439, 439, &[load(1, Text)]),                                   // faccessat2
    (89, NO, &[load(0, Text), store(1, Result(1))]),                // readlink
    (267, 78, &[load(1, Text), store(2, Result(1))]),               // readlinkat
    (78, NO, &[store(1, Result(1))]),                               // getdents
    (217, 61, &[store(1, Result(1))]),                              // getdents64
    (79, 17, &[store(0, Result(1))]),                               // getcwd
    (80, 49, &[load(0, Text)]),                                     // chdir
    (82, NO, &[load(0, Text), load(1, Text)]),                      // rename
    (264, 38, &[load(1, Text), load(3, Text)]),                     // renameat
    (316, 276, &[load(1, Text), load(3, Text)]),                    // renameat2
    (83, NO, &[load(0, Text)]),                                     // mkdir
    (258, 34, &[load(1, Text)]),                                    // mkdirat
    (84, NO, &[load(0, Text)]),                                     // rmdir
    (87, NO, &[load(0, Text)]),                                     // unlink
    (263, 35, &[load(1, Text)]),                                    // unlinkat
    (90, NO, &[load(0, Text)]),                                     // chmod
    (268, 53, &[load(1, Text)]),                                    // fchmodat
    (280, 88, &[load(1, Text), load(2, Bytes(32))]),                // utimensat
    (191, 8, &[load(0, Text), load(1, Text), store(2, AtMost(3))]), // getxattr
    (192, 9, &[load(0, Text), load(1, Text), store(2, AtMost(3))]), // lgetxattr
    (193, 10, &[load(1, Text), store(2, AtMost(3))]),               // fgetxattr
    (194, 11, &[load(0, Text), store(1, AtMost(2))]),               // listxattr
    (195, 12, &[load(0, Text), store(1, AtMost(2))]),               // llistxattr
    (196, 13, &[store(1, AtMost(2))]),                              // flistxattr
    // Time.
    (35, 101, &[load(0, Bytes(16))]),                      // nanosleep
    (230, 115, &[load(2, Bytes(16))]),                     // clock_nanosleep
    (228, 113, &[store(1, Bytes(16))]),                    // clock_gettime
    (229, 114, &[store(1, Bytes(16))]),                    // clock_getres
    (96, 169, &[store(0, Bytes(16)), store(1, Bytes(8))]), // gettimeofday
    (201, NO, &[store(0, Bytes(8))]),                      // time
    (100, 153, &[store(0, Bytes(32))]),                    // times
    (38, 103, &[load(1, Bytes(32)), store(2, Bytes(32))]), // setitimer
    // Signals and processes. struct sigaction has a restorer on x86-64 and arm64; without one, as on RISC-V, it has 24 bytes.
    (13, 134, &[load(1, Bytes(32)), store(2, Bytes(32))]), // rt_sigaction
    (14, 135, &[load(1, Bytes(8)), store(2, Bytes(8))]),   // rt_sigprocmask
    (131, 132, &[load(0, Bytes(24)), store(1, Bytes(24))]), // sigaltstack
    (61, 260, &[store(1, IfPositive(4)), store(3, IfPositive(144))]), // wait4
    // The kernel writes siginfo_t up to si_status. The first member is 0 if nothing was found.
    (247, 95, &[store(2, Bytes(28)), store(4, IfNonzero(2, 144))]), // waitid
    (97, 163, &[store(1, Bytes(16))]),                              // getrlimit
    (160, 164, &[load(1, Bytes(16))]),                              // setrlimit
    (302, 261, &[load(2, Bytes(16)), store(3, Bytes(16))]),         // prlimit64
    (98, 165, &[store(1, Bytes(144))]),                             // getrusage
    (203, 122, &[load(2, Argument(1, 1))]),                         // sched_setaffinity
    (204, 123, &[store(2, Result(1))]),                             // sched_getaffinity
    (63, 160, &[store(0, Bytes(390))]),                             // uname
    (99, 179, &[store(0, Bytes(112))]),                             // sysinfo
];

/// The system call tables of the supported architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    X86_64,
    /// The generic table, which arm64 and RISC-V use.
    Generic,
}

/// The accesses of the call with this number.
pub fn of_call(abi: Abi, number: i64) -> &'static [KernelAccess] {
    let has_number = |row: &&Row| match abi {
        Abi::X86_64 => row.0 == number,
        Abi::Generic => row.1 == number,
    };
    // A negative number could match `NO`.
    ROWS.iter().filter(|_| number >= 0).find(has_number).map_or(&[], |row| row.2)
}
