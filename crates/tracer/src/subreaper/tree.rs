//! [`Subreaper`]: a process that ends when all processes of a program's tree have ended, and that can kill them.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::reaping::{KILL_AGAIN, Reaped, kill_all, reap, wait_for_signal};
use super::shared_status::{
    ROOT_ENDED, ROOT_KILLED, SharedStatus, SubreaperState, TREE_STATUS, map_shared, monotonic_ns, publish_root,
};
use super::{END, fork_below};
use crate::child;

/// What happened to the root of an untraced tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootOutcome {
    /// It still runs.
    Runs,
    /// It ended by itself.
    Ended {
        /// Its status, as in wait(2).
        status: libc::c_int,
        /// The time, in nanoseconds of [`monotonic_ns`].
        at_ns: u64,
    },
    /// The subreaper killed it, or was killed, which also kills an untraced root.
    Killed,
}

/// The subreaper of a tree that the calling thread started. It is asked to end when that thread ends.
#[derive(Debug)]
pub struct Subreaper {
    process: libc::pid_t,
    shared: NonNull<SharedStatus>,
}

impl Subreaper {
    /// Forks a subreaper, which forks the process that becomes the root of the tree by calling `root`. After `limit`
    /// the subreaper kills the tree if the root still lives. A root that restores a terminal gets a moment to do so
    /// after pagelab has died.
    ///
    /// # Safety
    /// `root` runs in a process that fork has just created from one that may have other threads: it may make only system calls.
    pub unsafe fn start(
        limit: Option<Duration>,
        restores_terminal: bool,
        root: impl FnOnce(),
    ) -> io::Result<(Subreaper, libc::pid_t)> {
        let shared = map_shared()?;
        let mut subreaper = Subreaper { process: 0, shared };
        let (answer, answers) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        // SAFETY: the child only makes system calls, and does not return.
        subreaper.process = unsafe {
            let pagelab = libc::getpid();
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => match fork_below(pagelab) {
                    Ok(None) => {
                        root();
                        libc::_exit(libc::EXIT_FAILURE)
                    }
                    Ok(Some(root)) => {
                        send_answer(&answers, root);
                        watch_tree(root, deadline, restores_terminal, shared)
                    }
                    Err(error) => {
                        send_answer(&answers, -error.raw_os_error().unwrap_or(libc::EIO));
                        libc::_exit(libc::EXIT_FAILURE)
                    }
                },
                subreaper => subreaper,
            }
        };
        drop(answers);
        let mut root = [0; 4];
        let read = io::Read::read_exact(&mut std::fs::File::from(answer), &mut root);
        match (read, libc::pid_t::from_ne_bytes(root)) {
            (Ok(()), root) if root > 0 => {
                TREE_STATUS.set(Some(shared));
                Ok((subreaper, root))
            }
            (read, errno) => {
                subreaper.wait();
                Err(read.err().unwrap_or_else(|| io::Error::from_raw_os_error(-errno)))
            }
        }
    }

    /// PID of the subreaper, a child of the thread that started it.
    pub fn process(&self) -> libc::pid_t {
        self.process
    }

    /// Asks the subreaper to kill the tree. Call this before waiting for it.
    pub fn end(&self) {
        // SAFETY: plain system calls on a child that was not waited for. It may have been stopped.
        unsafe {
            libc::kill(self.process, END);
            libc::kill(self.process, libc::SIGCONT);
        }
    }

    /// Waits for the end of the subreaper.
    pub fn wait(&self) {
        // SAFETY: a null pointer says that the status is not wanted.
        while unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::__WALL) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }

    /// Kills the subreaper but not its children, which become orphans. Call this before waiting for it.
    pub fn dismiss(&self) {
        // SAFETY: a plain system call on a child that was not waited for.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
    }

    /// Waits at most this long for the end of an untraced root.
    pub fn wait_for_root(&self, patience: Duration) -> RootOutcome {
        let ended = |(status, at_ns)| RootOutcome::Ended { status, at_ns };
        match self.end_of_root(patience) {
            Some(end) => ended(end),
            None if !self.is_over() => RootOutcome::Runs,
            // It may have ended by itself between the two checks.
            None => self.end_of_root(Duration::ZERO).map_or(RootOutcome::Killed, ended),
        }
    }

    /// How and when the root ended by itself; `None` if it still runs after `patience`, or if the subreaper killed it.
    fn end_of_root(&self, patience: Duration) -> Option<(libc::c_int, u64)> {
        let shared = self.shared();
        let seen = || shared.root_ended.load(Ordering::SeqCst);
        if seen() == 0 {
            let left = libc::timespec {
                tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: patience.subsec_nanos().into(),
            };
            // SAFETY: the word is in the shared status, which lives as long as `self`.
            unsafe { libc::syscall(libc::SYS_futex, shared.root_ended.as_ptr(), libc::FUTEX_WAIT, 0, &raw const left) };
        }
        (seen() == ROOT_ENDED)
            .then(|| (shared.root_status.load(Ordering::SeqCst), shared.root_end_ns.load(Ordering::SeqCst)))
    }

    /// Whether the tree and its subreaper have ended, or the subreaper was killed.
    pub fn is_over(&self) -> bool {
        // SAFETY: the structure is live; the subreaper is this thread's child, and WNOWAIT does not reap it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            libc::waitid(libc::P_PID, self.process as libc::id_t, &raw mut info, flags) == -1 || info.si_pid() != 0
        }
    }

    /// Whether the subreaper killed the tree because the root's time limit had expired.
    pub fn time_is_up(&self) -> bool {
        self.shared().state.load(Ordering::SeqCst) == SubreaperState::TimeIsUp as u32
    }

    /// Whether the subreaper ended although a process did not die.
    pub fn is_stuck(&self) -> bool {
        self.shared().stuck.load(Ordering::SeqCst) != 0
    }

    /// Resources of the tree; `None` until it has ended, or if the subreaper was killed.
    pub fn used(&self) -> Option<libc::rusage> {
        let shared = self.shared();
        (shared.ended.load(Ordering::SeqCst) != 0).then_some(shared.used)
    }

    fn shared(&self) -> &SharedStatus {
        // SAFETY: the status lives as long as `self`. Its non-atomic part is written before `ended` is set, and read after.
        unsafe { self.shared.as_ref() }
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        if TREE_STATUS.get() == Some(self.shared) {
            TREE_STATUS.set(None);
        }
        // SAFETY: the mapping is this value's own and is not used again.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<SharedStatus>()) };
    }
}

/// # Safety
/// Only in a process that fork has just made.
unsafe fn send_answer(answers: &std::os::fd::OwnedFd, number: libc::pid_t) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the bytes are live. A pipe takes a write of this size whole.
    unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(answers), bytes.as_ptr().cast(), bytes.len()) };
}

/// Main loop of a tree's subreaper, with every signal blocked.
///
/// # Safety
/// As for [`insert_subreaper`]; the status is mapped.
unsafe fn watch_tree(
    root: libc::pid_t,
    deadline: Option<Instant>,
    restores_terminal: bool,
    shared: NonNull<SharedStatus>,
) -> ! {
    // SAFETY: plain system calls on memory of this function and on the shared status, which only this process writes.
    unsafe {
        child::close_from(0);
        let shared = shared.as_ptr();
        let mut deadline = deadline;
        loop {
            match reap(|ended| ended == root) {
                Reaped::Watched(status) => {
                    deadline = None;
                    (*shared).root_status.store(status, Ordering::SeqCst);
                    (*shared).root_end_ns.store(monotonic_ns(), Ordering::SeqCst);
                    publish_root(shared, ROOT_ENDED);
                    continue;
                }
                Reaped::Others => {}
                Reaped::Last => break,
            }
            let state = match wait_for_signal(deadline) {
                Some(END) => SubreaperState::Ending,
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => SubreaperState::TimeIsUp,
                _ => continue,
            };
            // The tracer must see the new state before the first process dies.
            (*shared).state.store(state as u32, Ordering::SeqCst);
            let until = Instant::now().checked_add(KILL_AGAIN * 10).filter(|_| restores_terminal);
            while until.is_some_and(|until| Instant::now() < until)
                && matches!(reap(|ended| ended == root), Reaped::Others)
            {
                wait_for_signal(until);
            }
            (*shared).stuck.store(u32::from(!kill_all()), Ordering::SeqCst);
            break;
        }
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut (*shared).used);
        (*shared).ended.store(1, Ordering::SeqCst);
        if (*shared).root_ended.load(Ordering::SeqCst) == 0 {
            publish_root(shared, ROOT_KILLED);
        }
        libc::_exit(libc::EXIT_SUCCESS)
    }
}
