//! The [`Watchdog`] is the process that restores the settings when pagelab is killed.
//!
//! It is a fork, not a re-execution of the program, for three reasons. It works in every program that uses this library,
//! including tests. Nothing can fail between the fork and the moment at which it is armed. And it needs no additional memory, so
//! it also works when pagelab was killed because memory ran out. In return it may only do what is async-signal-safe, because the
//! program may have other threads: it reads and writes small files, which [`super::setting`] does without allocation.
//!
//! It runs in a session of its own with every signal blocked, so that Ctrl-C and a closed terminal do not reach it. It keeps
//! only three of the program's descriptors open: the lock, one end of a socket pair, and a pidfd of pagelab (its
//! standard streams are /dev/null). If pagelab ends, or the other end of the socket is closed, without a goodbye message, pagelab
//! is dead. The watchdog then restores the settings, removes the journal, releases the lock, and exits. The end of the
//! socket alone is not sufficient, and closing the lock would not release it, if pagelab was killed between a fork and the
//! following exec: the new process has both descriptors. The watchdog is not a child of pagelab but a grandchild, so that a
//! tracer that waits for any child does not receive it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::ledger::Ledger;
use super::lock::Lock;
use super::setting::{self, RestoreOutcome};

/// The message of the lease after it has restored the settings itself.
static GOODBYE: u8 = b'G';
/// The message of the watchdog when it is armed.
static READY: u8 = b'R';
/// How long each side waits for the other's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The lease's end of the connection to its watchdog.
#[derive(Debug)]
pub struct Watchdog {
    line: OwnedFd,
}

impl Watchdog {
    /// Forks the watchdog, and returns when it is armed.
    pub fn start(ledger: &Ledger, lock: &Lock, journal: &Path) -> io::Result<Watchdog> {
        let journal = CString::new(journal.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
        let (ours, its) = socket_pair()?;
        let program = this_process();
        let keep = [its.as_raw_fd(), lock.descriptor(), program.as_ref().map_or(-1, AsRawFd::as_raw_fd)];
        let mut mask = Signals::block_all();
        // SAFETY: the child calls only what is async-signal-safe, and does not return.
        let child = match unsafe { libc::fork() } {
            0 => guard(ledger, keep, &journal),
            child => child,
        };
        let forked = if child < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        mask.restore();
        forked?;
        drop((its, program));
        reap(child)?;
        let watchdog = Watchdog { line: ours };
        match watchdog.read(ANSWER)? {
            Some(byte) if byte == READY => Ok(watchdog),
            _ => Err(io::Error::other("the watchdog ended before it was armed")),
        }
    }

    /// Whether the watchdog still runs.
    pub fn is_alive(&self) -> bool {
        !matches!(self.read(Duration::ZERO), Ok(None))
    }

    /// Sends the goodbye message, and waits until the watchdog has ended.
    pub fn dismiss(self) {
        // SAFETY: pointer and length belong to one byte. MSG_NOSIGNAL: a watchdog that was killed must not kill the program by
        // SIGPIPE.
        let sent = unsafe { libc::send(self.line.as_raw_fd(), (&raw const GOODBYE).cast(), 1, libc::MSG_NOSIGNAL) };
        if sent == 1 {
            let _ = self.read(ANSWER);
        }
    }

    /// The next byte; `None` at the end of the connection. Fails with `TimedOut` if nothing arrives within `patience`.
    fn read(&self, patience: Duration) -> io::Result<Option<u8>> {
        let start = Instant::now();
        loop {
            let left = patience.saturating_sub(start.elapsed());
            let mut poll = libc::pollfd { fd: self.line.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
            // SAFETY: one pollfd, as the count says.
            match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
                0 if start.elapsed() >= patience => return Err(io::ErrorKind::TimedOut.into()),
                ready if ready > 0 => return receive(self.line.as_raw_fd()),
                _ => {}
            }
        }
    }
}

fn receive(line: libc::c_int) -> io::Result<Option<u8>> {
    let mut byte = 0u8;
    loop {
        // SAFETY: pointer and length belong to one byte.
        match unsafe { libc::read(line, (&raw mut byte).cast(), 1) } {
            1 => return Ok(Some(byte)),
            0 => return Ok(None),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.raw_os_error() == Some(libc::ECONNRESET) => return Ok(None),
                error => return Err(error),
            },
        }
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the two descriptors are new and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A pidfd of this process, which becomes readable when the process ends; `None` before Linux 5.3, which has no pidfds.
fn this_process() -> Option<OwnedFd> {
    // SAFETY: plain system calls.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) } as libc::c_int;
    // SAFETY: the descriptor is new and has no other owner.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Waits until pagelab sends a message or ends. Returns whether the message was a goodbye.
fn wait_for_goodbye(line: libc::c_int, program: libc::c_int) -> bool {
    // poll(2) ignores a negative descriptor.
    let wait = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut ends = [wait(line), wait(program)];
    let mut word = 0u8;
    // SAFETY: two pollfds, as the count says; then pointer and length belong to one byte.
    unsafe {
        while libc::poll(ends.as_mut_ptr(), 2, -1) < 1 {}
        libc::recv(line, (&raw mut word).cast(), 1, libc::MSG_DONTWAIT) == 1 && word == GOODBYE
    }
}

/// Waits for the intermediate child between the lease and the watchdog.
fn reap(child: libc::pid_t) -> io::Result<()> {
    loop {
        // SAFETY: a null pointer means that the status is not requested.
        if unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == child {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            // Another thread reaps every child, or children are reaped automatically: the child is gone in either case.
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            error => return Err(error),
        }
    }
}

/// The previous signal mask of this thread, while every signal is blocked.
struct Signals(libc::sigset_t);

impl Signals {
    fn block_all() -> Signals {
        // SAFETY: both sets are local variables; an all-zero signal set is valid.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Signals(before)
        }
    }

    fn restore(&mut self) {
        // SAFETY: the set is the one that `block_all` received.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// The main function of the watchdog, in the child of the fork. Every signal is already blocked.
fn guard(ledger: &Ledger, keep: [libc::c_int; 3], journal: &CString) -> ! {
    let [line, lock, program] = keep;
    // SAFETY: async-signal-safe calls with valid pointers. The first child exits and the second continues, so that its parent is
    // not the program.
    unsafe {
        libc::setsid();
        match libc::fork() {
            0 => {}
            second => libc::_exit(libc::c_int::from(second < 0)),
        }
        libc::prctl(libc::PR_SET_NAME, c"lease-watchdog".as_ptr());
        libc::chdir(c"/".as_ptr());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for stream in 0..3 {
            libc::dup2(null, stream);
        }
        spare_from_oom();
        close_all_but(keep);
        libc::send(line, (&raw const READY).cast(), 1, libc::MSG_NOSIGNAL);
    }
    if !wait_for_goodbye(line, program) {
        put_back(ledger, journal);
        // SAFETY: no pointers; the lock file is open.
        unsafe {
            libc::ftruncate(lock, 0);
            libc::flock(lock, libc::LOCK_UN);
        }
    }
    // SAFETY: ends the process without running any code of the program.
    unsafe { libc::_exit(0) }
}

/// Restores everything. The journal is removed only if every setting has its old value: `pagelab restore` reports settings that
/// another process changed or that failed.
fn put_back(ledger: &Ledger, journal: &CString) {
    let mut all_is_back = true;
    setting::put_back_all(ledger.entries(), |_, outcome| {
        all_is_back &= matches!(outcome, RestoreOutcome::Unchanged | RestoreOutcome::Restored);
    });
    if all_is_back {
        // SAFETY: the name is a C string.
        unsafe { libc::unlink(journal.as_ptr()) };
    }
}

/// Lets the OOM killer choose other processes first, if this process may request that (proc(5), oom_score_adj).
fn spare_from_oom() {
    let value = b"-1000";
    // SAFETY: the name is a C string; pointer and length belong to one array.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, value.as_ptr().cast(), value.len());
            libc::close(file);
        }
    }
}

/// Closes every descriptor except the standard streams and those to keep: pipes must not stay open if a caller waits for their
/// end.
fn close_all_but(mut keep: [libc::c_int; 3]) {
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep {
        close_range(first, kept.saturating_sub(1));
        first = first.max(kept.saturating_add(1));
    }
    close_range(first, libc::c_int::MAX);
}

/// close_range(2), or one by one on kernels before 5.9.
fn close_range(first: libc::c_int, last: libc::c_int) {
    if first > last {
        return;
    }
    // SAFETY: no pointers.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is a local variable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let end = libc::c_int::try_from(limit.rlim_cur).unwrap_or(libc::c_int::MAX).min(last.saturating_add(1));
    for descriptor in first..end {
        // SAFETY: no pointers; a descriptor that is not open is an error without effect.
        unsafe { libc::close(descriptor) };
    }
}
