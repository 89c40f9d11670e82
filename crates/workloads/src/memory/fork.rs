//! A fork that safe code can call: the child runs a closure, returns numbers, and exits.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use super::Mapping;

/// Why a fork did not complete.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The process has other threads; a lock that one of them holds would stay locked in the child.
    #[error("expected a process with one thread before fork, found {threads}; fork before other threads start")]
    Threads { threads: usize },
    /// The kernel refused the fork, the shared page or the wait.
    #[error("cannot {call}: {source}; {remedy}")]
    Refused {
        /// The call, or what it was to do.
        call: &'static str,
        source: io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    /// The child exited before its closure completed, or because the closure panicked.
    #[error("the forked child ended with status {status}; expected 0")]
    Exited {
        /// Its exit status.
        status: i32,
    },
    #[error("the forked child {how}; memory may have run out (dmesg says)")]
    Child {
        /// How the child ended.
        how: String,
    },
}

/// The times and the result of a fork.
#[derive(Debug)]
pub struct Forked {
    /// Time of the fork call in the parent: the copying of the page tables.
    pub fork_time: Duration,
    /// Time from the fork's return in the parent until the child was reaped.
    pub child_time: Duration,
    /// The numbers that the child returned.
    pub results: Vec<u64>,
}

/// Forks; the child calls `body` with `results` zeroed numbers to fill, and exits. Returns when the child has been reaped.
///
/// The numbers are returned in a shared mapping that is present before the fork. The kernel copies no page tables for it
/// (`vma_needs_copy`, mm/memory.c), so filling it costs the child minor faults of its own: fill it outside the timed part. Refused
/// if other threads exist.
pub fn fork(results: usize, body: impl FnOnce(&mut [u64])) -> Result<Forked, ForkError> {
    let threads = threads_of_this_process()?;
    if threads != 1 {
        return Err(ForkError::Threads { threads });
    }
    // SAFETY: this is the only thread, so no other thread holds a lock and the child may run any code.
    unsafe { fork_among_threads(results, body) }
}

/// As [`fork`], but does not refuse if other threads exist.
///
/// # Safety
/// Where other threads exist, `body` may only do what is async-signal-safe (signal-safety(7)).
unsafe fn fork_among_threads(results: usize, body: impl FnOnce(&mut [u64])) -> Result<Forked, ForkError> {
    let mut shared = SharedWords::map(results)?;
    let start = Instant::now();
    // SAFETY: the caller guarantees the body; the child never returns from here, it ends in `_exit`.
    let child = match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => run_child(shared.words(), body),
        Ok(ForkResult::Parent { child }) => child,
        Err(errno) => return Err(refused("fork", errno, "raise `ulimit -u`, or fewer bytes")),
    };
    let fork_time = start.elapsed();
    let status = wait(child)?;
    let child_time = start.elapsed() - fork_time;
    match status {
        WaitStatus::Exited(_, 0) => Ok(Forked { fork_time, child_time, results: shared.words().to_vec() }),
        WaitStatus::Exited(_, code) => Err(ForkError::Exited { status: code }),
        WaitStatus::Signaled(_, signal, _) => Err(ForkError::Child { how: format!("was killed by {signal}") }),
        other => Err(ForkError::Child { how: format!("is in an unexpected state, {other:?}") }),
    }
}

fn run_child(words: &mut [u64], body: impl FnOnce(&mut [u64])) -> ! {
    let outcome = catch_unwind(AssertUnwindSafe(|| body(words)));
    // SAFETY: `_exit` takes no pointers; it ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 101 }) }
}

fn wait(child: Pid) -> Result<WaitStatus, ForkError> {
    loop {
        match waitpid(child, None) {
            Err(nix::errno::Errno::EINTR) => {}
            Ok(status) => return Ok(status),
            Err(errno) => return Err(refused("waitpid", errno, "do not ignore SIGCHLD")),
        }
    }
}

fn refused(call: &'static str, errno: nix::errno::Errno, remedy: &'static str) -> ForkError {
    ForkError::Refused { call, source: errno.into(), remedy }
}

/// The number of threads that the program in this process has.
///
/// Linux reports it in `/proc/self/stat`. QEMU's user emulation has a thread of its own in addition to the program's.
/// `/proc/self/task` shows that thread too, but QEMU emulates `stat`: since version 9 it reports the program's threads, before
/// that 0 (`open_self_stat`, linux-user/syscall.c), which Linux never reports for a running process. In that case the C library
/// is queried.
pub(super) fn threads_of_this_process() -> Result<usize, ForkError> {
    let uncounted =
        |source| ForkError::Refused { call: "count threads in /proc/self/stat", source, remedy: "mount /proc" };
    let stat = std::fs::read("/proc/self/stat").map_err(uncounted)?;
    match threads_in(&stat) {
        Some(0) if is_single_threaded_for_libc() => Ok(1),
        Some(0) => Err(ForkError::Refused {
            call: "tell whether this process has one thread",
            source: io::Error::new(
                io::ErrorKind::Unsupported,
                "/proc/self/stat says 0, and the C library does not confirm that it has",
            ),
            remedy: "run it without the emulator, or under QEMU 9 or later",
        }),
        Some(threads) => Ok(threads),
        None => Err(uncounted(io::Error::new(io::ErrorKind::InvalidData, "its field 20 is no number"))),
    }
}

/// The field `num_threads` of `/proc/PID/stat` (proc_pid_stat(5)): the 18th field after the name, which may contain any
/// character.
fn threads_in(stat: &[u8]) -> Option<usize> {
    let stat = String::from_utf8_lossy(stat);
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(17)?.parse().ok()
}

/// Whether the C library guarantees that there is one thread: `__libc_single_threaded` (sys/single_threaded.h, glibc 2.32).
fn is_single_threaded_for_libc() -> bool {
    // SAFETY: the name is a zero-terminated string; nothing is called.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    // SAFETY: where the library has the symbol, it is a `char` that exists as long as the process and that only the library
    // writes, when this thread creates another one.
    NonNull::new(symbol.cast::<libc::c_char>()).is_some_and(|word| unsafe { word.as_ptr().read_volatile() } != 0)
}

/// Numbers that parent and child share.
struct SharedWords {
    mapping: Mapping,
    count: usize,
}

impl SharedWords {
    fn map(count: usize) -> Result<SharedWords, ForkError> {
        let bytes = count.saturating_mul(size_of::<u64>()).max(1);
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapping = Mapping::anonymous(bytes, access, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE);
        let mapping = mapping.map_err(|source| ForkError::Refused {
            call: "map the child's results",
            source,
            remedy: "fewer of them",
        })?;
        Ok(SharedWords { mapping, count })
    }

    /// Only called in the parent before the fork and after the child was reaped, and in the child in between.
    fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is page aligned, zeroed, `count` words long and exists as long as `self`; the two processes use it
        // one after the other.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start().as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_thread_counts_of_linux_and_qemu() {
        let linux = b"71 (a) S 1) R 70 71 8 0 -1 4194304 99 0 0 0 0 0 0 0 20 0 3 0 3291147 3133440 368 1 2 3";
        let qemu_7 = b"71 (cat) 0 70 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3291236 0 0 0 0 0 27491 0 0 0";
        assert_eq!((threads_in(linux), threads_in(qemu_7)), (Some(3), Some(0)));
        assert_eq!((threads_in(b""), threads_in(b"71 (cat) R 1 2"), threads_in(b"71 (cat")), (None, None, None));
        assert!(threads_of_this_process().unwrap() > 0);
    }

    #[test]
    fn the_c_library_knows_of_threads() {
        std::thread::spawn(|| assert!(!is_single_threaded_for_libc())).join().unwrap();
    }

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The test harness runs each test in a thread of its own in addition to the main thread.
        let outcome = fork(1, |words| words[0] = 1);
        match threads_of_this_process().unwrap() {
            1 => assert_eq!(outcome.unwrap().results, [1]),
            _ => assert!(matches!(outcome, Err(ForkError::Threads { .. })), "{outcome:?}"),
        }
    }

    #[test]
    fn the_child_returns_numbers_and_changes_nothing_else() {
        let mut mine = [1u64];
        // SAFETY: the body only stores numbers.
        let forked = unsafe {
            fork_among_threads(600, |words| {
                mine[0] = 2;
                (words[0], words[599]) = (mine[0], 7);
            })
        }
        .unwrap();
        assert_eq!((forked.results[0], forked.results[1], forked.results[599], mine[0]), (2, 0, 7, 1));
        assert!(forked.fork_time > Duration::ZERO && forked.child_time > Duration::ZERO);
    }

    #[test]
    fn reports_how_a_child_ended() {
        // SAFETY: `_exit` and `raise` are async-signal-safe.
        let exited = unsafe { fork_among_threads(1, |_| libc::_exit(3)) }.unwrap_err().to_string();
        assert!(exited.contains("ended with status 3"), "{exited}");
        // SAFETY: as above.
        let killed = unsafe {
            fork_among_threads(1, |_| {
                libc::raise(libc::SIGKILL);
            })
        };
        let killed = killed.unwrap_err().to_string();
        assert!(killed.contains("was killed by SIGKILL"), "{killed}");
    }
}
