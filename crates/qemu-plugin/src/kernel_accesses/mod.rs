// SPDX-License-Identifier: GPL-2.0-or-later
//! What the kernel reads and writes of the program's memory in a system call: pages that are faulted in and that no
//! instruction of the program touches.
//!
//! Sources: the calls' manual pages, the numbers of `arch/x86/entry/syscalls/syscall_64.tbl` and
//! `include/uapi/asm-generic/unistd.h`, and the sizes of the structures of `include/uapi`.
//!
//! What is not told: `ioctl`, whose arguments only the device knows; calls that act on memory later than they return
//! (`io_uring_enter`, `io_submit`) or on another process; `mlock`; the frames of signal handlers; `recvmmsg` and
//! `sendmmsg`. What a stream socket throws away because `MSG_TRUNC` asks it to (tcp(7)) is told as if it had been copied.

use trace::PAGE_SHIFT;

use crate::call::{Memory, Pending};

/// A stretch of memory that the kernel touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Where it begins.
    pub address: u64,
    /// Bytes, at least one.
    pub bytes: u64,
    /// Whether the kernel writes it; if not, it reads.
    pub store: bool,
}

impl Touched {
    /// The stretch page by page.
    pub fn pages(self) -> impl Iterator<Item = Touched> {
        let last = self.address.saturating_add(self.bytes - 1);
        (self.address >> PAGE_SHIFT..=last >> PAGE_SHIFT).map(move |page| {
            let address = self.address.max(page << PAGE_SHIFT);
            let end = last.min(page << PAGE_SHIFT | ((1 << PAGE_SHIFT) - 1));
            Touched { address, bytes: end - address + 1, ..self }
        })
    }
}

/// What a call does to the memory that an argument points to.
#[derive(Clone, Copy, Debug)]
pub enum Touch {
    /// One stretch.
    Range {
        /// The argument that points to it.
        pointer: usize,
        /// How long it is.
        length: Length,
        /// Whether it is written.
        store: bool,
    },
    /// The stretches of an array of `struct iovec`, as far as the result goes.
    Vector {
        /// The argument that points to the array.
        array: usize,
        /// The argument with its length.
        count: usize,
        /// Whether they are written.
        store: bool,
    },
    /// What a `struct msghdr` points to.
    Message {
        /// The argument that points to it.
        header: usize,
        /// Whether the message is written.
        store: bool,
    },
}

/// The bytes of a stretch.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// So many.
    Bytes(u64),
    /// So many for each of the result.
    Result(u64),
    /// As many as the result, and no more than an argument: there is more than is copied.
    Within(usize),
    /// So many where the result is not 0: something was found.
    Found(u64),
    /// So many where the four bytes that an argument points to are not 0.
    Unless0(usize, u64),
    /// So many for each of an argument.
    Argument(usize, u64),
    /// A bit for each of an argument, in whole words (`fd_set`).
    Bits(usize),
    /// What the four bytes say that an argument points to (`socklen_t`), and no more than they said before.
    Pointed(usize),
    /// Up to a zero.
    Text,
}

use Length::{Argument, Bits, Bytes, Found, Pointed, Result, Text, Unless0, Within};

const fn load(pointer: usize, length: Length) -> Touch {
    Touch::Range { pointer, length, store: false }
}

const fn store(pointer: usize, length: Length) -> Touch {
    Touch::Range { pointer, length, store: true }
}

const fn vector(store: bool) -> [Touch; 1] {
    [Touch::Vector { array: 1, count: 2, store }]
}

/// What the kernel tells at an argument, with its length at the next one: that is read and written too.
const fn named(pointer: usize) -> [Touch; 2] {
    [store(pointer, Pointed(pointer + 1)), store(pointer + 1, Bytes(4))]
}

/// A call: its number on x86-64 and in the generic table, and what it touches.
type Row = (i64, i64, &'static [Touch]);

/// There is no such call, or with other sizes.
const NO: i64 = -1;

const ROWS: &[Row] = &[
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
    // Waiting for it.
    (7, NO, &[store(0, Argument(1, 8))]), // poll
    (271, 73, &[store(0, Argument(1, 8)), load(2, Bytes(16)), load(3, Bytes(8))]), // ppoll
    (23, NO, &[store(1, Bits(0)), store(2, Bits(0)), store(3, Bits(0)), load(4, Bytes(16))]), // select
    (270, 72, &[store(1, Bits(0)), store(2, Bits(0)), store(3, Bits(0)), load(4, Bytes(16))]), // pselect6
    // struct epoll_event is packed on x86-64 alone.
    (232, NO, &[store(1, Result(12))]),                    // epoll_wait
    (281, NO, &[store(1, Result(12)), load(4, Bytes(8))]), // epoll_pwait
    (NO, 22, &[store(1, Result(16)), load(4, Bytes(8))]),  // epoll_pwait
    (233, NO, &[load(3, Bytes(12))]),                      // epoll_ctl
    (NO, 21, &[load(3, Bytes(16))]),                       // epoll_ctl
    // Sockets.
    (42, 203, &[load(1, Argument(2, 1))]),                     // connect
    (49, 200, &[load(1, Argument(2, 1))]),                     // bind
    (43, 202, &named(1)),                                      // accept
    (288, 242, &named(1)),                                     // accept4
    (51, 204, &named(1)),                                      // getsockname
    (52, 205, &named(1)),                                      // getpeername
    (53, 199, &[store(3, Bytes(8))]),                          // socketpair
    (54, 208, &[load(3, Argument(4, 1))]),                     // setsockopt
    (55, 209, &named(3)),                                      // getsockopt
    (44, 206, &[load(1, Result(1)), load(4, Argument(5, 1))]), // sendto
    (45, 207, &[store(1, Within(2)), store(4, Pointed(5)), store(5, Bytes(4))]), // recvfrom
    (46, 211, &[Touch::Message { header: 1, store: false }]),  // sendmsg
    (47, 212, &[Touch::Message { header: 1, store: true }]),   // recvmsg
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
    (191, 8, &[load(0, Text), load(1, Text), store(2, Within(3))]), // getxattr
    (192, 9, &[load(0, Text), load(1, Text), store(2, Within(3))]), // lgetxattr
    (193, 10, &[load(1, Text), store(2, Within(3))]),               // fgetxattr
    (194, 11, &[load(0, Text), store(1, Within(2))]),               // listxattr
    (195, 12, &[load(0, Text), store(1, Within(2))]),               // llistxattr
    (196, 13, &[store(1, Within(2))]),                              // flistxattr
    // Time.
    (35, 101, &[load(0, Bytes(16))]),                      // nanosleep
    (230, 115, &[load(2, Bytes(16))]),                     // clock_nanosleep
    (228, 113, &[store(1, Bytes(16))]),                    // clock_gettime
    (229, 114, &[store(1, Bytes(16))]),                    // clock_getres
    (96, 169, &[store(0, Bytes(16)), store(1, Bytes(8))]), // gettimeofday
    (201, NO, &[store(0, Bytes(8))]),                      // time
    (100, 153, &[store(0, Bytes(32))]),                    // times
    (38, 103, &[load(1, Bytes(32)), store(2, Bytes(32))]), // setitimer
    // Signals and processes. The restorer is part of struct sigaction on x86-64 and arm64.
    (13, NO, &[load(1, Bytes(32)), store(2, Bytes(32))]), // rt_sigaction
    (NO, 134, &[load(1, Bytes(24)), store(2, Bytes(24))]), // rt_sigaction
    (14, 135, &[load(1, Bytes(8)), store(2, Bytes(8))]),  // rt_sigprocmask
    (131, 132, &[load(0, Bytes(24)), store(1, Bytes(24))]), // sigaltstack
    (61, 260, &[store(1, Found(4)), store(3, Found(144))]), // wait4
    // Of what it found it tells in siginfo_t, whose first member is 0 where that is nothing.
    (247, 95, &[store(2, Bytes(128)), store(4, Unless0(2, 144))]), // waitid
    (97, 163, &[store(1, Bytes(16))]),                             // getrlimit
    (160, 164, &[load(1, Bytes(16))]),                             // setrlimit
    (302, 261, &[load(2, Bytes(16)), store(3, Bytes(16))]),        // prlimit64
    (98, 165, &[store(1, Bytes(144))]),                            // getrusage
    (203, 122, &[load(2, Argument(1, 1))]),                        // sched_setaffinity
    (204, 123, &[store(2, Result(1))]),                            // sched_getaffinity
    (63, 160, &[store(0, Bytes(390))]),                            // uname
    (99, 179, &[store(0, Bytes(112))]),                            // sysinfo
];

/// The two tables of numbers that Linux has for 64-bit programs, as far as they matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// That of x86-64.
    X86_64,
    /// That of all later architectures.
    Generic,
}

/// What the call of a number touches.
pub fn of_call(abi: Abi, number: i64) -> &'static [Touch] {
    let own = |row: &&Row| match abi {
        Abi::X86_64 => row.0 == number,
        Abi::Generic => row.1 == number,
    };
    ROWS.iter().filter(|_| number >= 0).find(own).map_or(&[], |row| row.2)
}

/// The results of a call that did not touch memory: it does not exist, or the memory does not.
const NOTHING_DONE: [i64; 2] = [-(libc::ENOSYS as i64), -(libc::EFAULT as i64)];
/// Most elements of an array of `struct iovec` (`UIO_MAXIOV`).
const MOST_PARTS: u64 = 1024;
/// More than any structure that is as long as an argument says.
const MOST_BYTES: u64 = 1 << 20;

/// What a call has room for where the kernel writes how long something is over how long it may be: to be asked before it.
pub fn room(touches: &[Touch], arguments: &[u64; 6], memory: &impl Memory) -> u64 {
    let said = touches.iter().find_map(|touch| match *touch {
        Touch::Range { length: Pointed(index), .. } => memory.half(arguments[index]),
        Touch::Message { header, .. } => memory.half(arguments[header].wrapping_add(NAME_BYTES)),
        _ => None,
    });
    said.map_or(0, u64::from)
}

/// The memory that a call touched, in the order in which the kernel does.
pub fn touched(call: &Pending, result: i64, memory: &impl Memory) -> Vec<Touched> {
    let mut done = Call { arguments: &call.arguments, room: call.room, result, memory, touched: Vec::new() };
    if !NOTHING_DONE.contains(&result) {
        call.touches.iter().for_each(|touch| done.add(*touch));
    }
    done.touched
}

/// Where a `struct msghdr` has the length of its name.
const NAME_BYTES: u64 = 8;

struct Call<'a, M> {
    arguments: &'a [u64; 6],
    room: u64,
    result: i64,
    memory: &'a M,
    touched: Vec<Touched>,
}

impl<M: Memory> Call<'_, M> {
    fn add(&mut self, touch: Touch) {
        match touch {
            Touch::Range { pointer, length, store } => {
                let address = self.arguments[pointer];
                // A call that fails has read what it was asked for, and written nothing.
                let done = self.result >= 0 || !store && matches!(length, Bytes(_) | Text);
                if done && address != 0 {
                    let bytes = self.bytes(address, length);
                    self.push(address, bytes, store);
                }
            }
            Touch::Vector { array, count, store } if self.result >= 0 => {
                self.vector(self.arguments[array], self.arguments[count], store);
            }
            Touch::Message { header, store } if self.result >= 0 => self.message(self.arguments[header], store),
            Touch::Vector { .. } | Touch::Message { .. } => {}
        }
    }

    fn bytes(&self, address: u64, length: Length) -> u64 {
        match length {
            Bytes(bytes) => bytes,
            Result(each) => self.result.max(0) as u64 * each,
            Within(index) => (self.result.max(0) as u64).min(self.arguments[index]),
            Found(bytes) => {
                if self.result > 0 {
                    bytes
                } else {
                    0
                }
            }
            Unless0(index, bytes) => match self.memory.half(self.arguments[index]) {
                None | Some(0) => 0,
                Some(_) => bytes,
            },
            Argument(index, each) => self.arguments[index].saturating_mul(each).min(MOST_BYTES),
            Bits(index) => self.arguments[index].min(MOST_BYTES).div_ceil(64) * 8,
            Pointed(index) => {
                let said = self.memory.half(self.arguments[index]).map_or(0, u64::from);
                said.min(self.room).min(MOST_BYTES)
            }
            Text => self.memory.text(address).len() as u64 + 1,
        }
    }

    fn push(&mut self, address: u64, bytes: u64, store: bool) {
        if bytes > 0 {
            self.touched.push(Touched { address, bytes, store });
        }
    }

    fn vector(&mut self, array: u64, count: u64, store: bool) {
        let count = count.min(MOST_PARTS);
        self.push(array, 16 * count, false);
        let mut left = self.result as u64;
        for element in 0..count {
            let at = array.wrapping_add(16 * element);
            let (Some(address), Some(bytes)) = (self.memory.word(at), self.memory.word(at.wrapping_add(8))) else {
                return;
            };
            let bytes = bytes.min(left);
            self.push(address, bytes, store);
            left -= bytes;
        }
    }

    fn message(&mut self, header: u64, store: bool) {
        let field = |offset: u64| self.memory.word(header.wrapping_add(offset)).unwrap_or(0);
        let name_bytes = self.memory.half(header.wrapping_add(NAME_BYTES)).map_or(0, u64::from);
        let name = (field(0), name_bytes.min(self.room));
        let (array, count) = (field(16), field(24));
        let control = (field(32), field(40));
        self.push(header, 56, store);
        for (address, bytes) in [name, control] {
            self.push(address, if address == 0 { 0 } else { bytes.min(MOST_BYTES) }, store);
        }
        self.vector(array, count, store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words by address, and texts of one length.
    struct Words(&'static [(u64, u64)]);

    impl Memory for Words {
        fn word(&self, address: u64) -> Option<u64> {
            self.0.iter().find(|(at, _)| *at == address).map(|(_, word)| *word)
        }

        /// A word or its first half: nothing is behind it.
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

    /// With what memory holds before and after the call.
    fn over(
        number: i64,
        arguments: [u64; 6],
        result: i64,
        [before, after]: [&'static [(u64, u64)]; 2],
    ) -> Vec<(u64, u64, bool)> {
        let touches = of_call(Abi::X86_64, number);
        let room = room(touches, &arguments, &Words(before));
        let touched = touched(&Pending { kind: None, touches, arguments, room }, result, &Words(after));
        touched.iter().map(|touched| (touched.address, touched.bytes, touched.store)).collect()
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        // A size of 0 asks for the size.
        assert_eq!(of(libc::SYS_fgetxattr, [3, 0x10, 0x20, 0, 0, 0], 99, &[]), [(0x10, 8, false)]);
        assert_eq!(of(libc::SYS_fgetxattr, [3, 0x10, 0x20, 200, 0, 0], 99, &[])[1], (0x20, 99, true));
        assert_eq!(of(libc::SYS_flistxattr, [3, 0x20, 0, 0, 0, 0], 99, &[]), []);
        // MSG_TRUNC: the result is the length of what was sent.
        let truncated = libc::MSG_TRUNC as u64;
        assert_eq!(of(libc::SYS_recvfrom, [3, 0x1000, 10, truncated, 0, 0], 500, &[]), [(0x1000, 10, true)]);
        const WORDS: &[(u64, u64)] = &[(0x110, 0x200), (0x118, 1), (0x200, 0x6000), (0x208, 100)];
        let expected = [(0x100, 56, true), (0x200, 16, false), (0x6000, 100, true)];
        assert_eq!(of(libc::SYS_recvmsg, [3, 0x100, truncated, 0, 0, 0], 500, WORDS), expected);
    }

    #[test]
    fn a_name_is_as_long_as_it_is_and_as_there_is_room_for() {
        let accept = [3, 0x1000, 0x2000, 0, 0, 0];
        let told = |room, length| over(libc::SYS_accept, accept, 4, [room, length]);
        let length = (0x2000, 4, true);
        assert_eq!(told(&[(0x2000, 128)], &[(0x2000, 16)]), [(0x1000, 16, true), length]);
        assert_eq!(told(&[(0x2000, 16)], &[(0x2000, 110)]), [(0x1000, 16, true), length]);
        // Nothing is asked for.
        assert_eq!(of(libc::SYS_accept, [3, 0, 0, 0, 0, 0], 4, &[]), []);
        const BEFORE: &[(u64, u64)] = &[(0x100, 0x4000), (0x108, 16)];
        const AFTER: &[(u64, u64)] = &[(0x100, 0x4000), (0x108, 110)];
        let touched = over(libc::SYS_recvmsg, [3, 0x100, 0, 0, 0, 0], 0, [BEFORE, AFTER]);
        assert_eq!(touched, [(0x100, 56, true), (0x4000, 16, true)]);
    }

    #[test]
    fn who_finds_no_child_is_told_nothing() {
        let wait = [-1i64 as u64, 0x10, libc::WNOHANG as u64, 0x20, 0, 0];
        assert_eq!(of(libc::SYS_wait4, wait, 0, &[]), []);
        assert_eq!(of(libc::SYS_wait4, wait, 77, &[]), [(0x10, 4, true), (0x20, 144, true)]);
        let wait = [0, 0, 0x10, libc::WNOHANG as u64, 0x20, 0];
        assert_eq!(of(libc::SYS_waitid, wait, 0, &[(0x10, 0)]), [(0x10, 128, true)]);
        let found = [(0x10, 128, true), (0x20, 144, true)];
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
        // Nothing is where nothing is pointed to.
        assert_eq!(of(libc::SYS_prlimit64, [0, 3, 0, 0x40, 0, 0], 0, &[]), [(0x40, 16, true)]);
    }

    #[test]
    fn parts_are_touched_as_far_as_the_result_goes() {
        const WORDS: &[(u64, u64)] =
            &[(0x100, 0x4000), (0x108, 10), (0x110, 0x5000), (0x118, 10), (0x120, 1), (0x128, 1)];
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

    /// The shape of a call is one of those that its name must have, on this machine.
    #[test]
    fn libc_agrees_on_this_machine() {
        let abi = if cfg!(target_arch = "x86_64") { Abi::X86_64 } else { Abi::Generic };
        let is = |number: i64, pointer: usize, stores: bool| {
            let touches = of_call(abi, number);
            let found = touches.iter().any(|touch| match touch {
                Touch::Range { pointer: at, store, .. } => (*at, *store) == (pointer, stores),
                Touch::Vector { array, store, .. } => (*array, *store) == (pointer, stores),
                Touch::Message { header, store } => (*header, *store) == (pointer, stores),
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
}
