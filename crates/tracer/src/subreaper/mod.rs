//! A process between pagelab and a program, so that nothing of what the program starts outlives it or pagelab.
//!
//! A program may start processes of its own, and these again others. The minder is their subreaper: whatever
//! loses its parent becomes the minder's child, so that in the end all of them are within its reach, and that
//! nothing is left is what wait says to it (ECHILD). There are two of them:
//!
//! * a helper's ([`step_between`]): when the helper has ended, when pagelab is dead, or when it is told to
//!   ([`END`]), it kills what is left and ends as the helper did. Helpers are not traced.
//! * a traced tree's ([`Minder`]): it ends when the tree has ended. When pagelab is dead, when it is told to, or when
//!   the tree's root has had its time, it kills the tree. What it does stands on a board that the tracer can read.
//!
//! # Why killing comes to an end
//! Processes that fork faster than they are killed are killed all the same:
//!
//! * Traced ones: a new task is held before its first instruction until the tracer lets it go, and once the board
//!   says that the tree is to end the tracer kills instead. A task that was killed makes no further one (fork looks for
//!   signals last of all, `copy_process` in kernel/fork.c). So there is at most one more for each that lived.
//! * Helpers are a process group of their own, and to a group a signal is sent while no fork can come in between (both
//!   hold `tasklist_lock`).
//! * What left its group, or its tracer (CLONE_UNTRACED), is killed again and again as it becomes the minder's child. It
//!   has to win every one of these races, and loses one of them.
//!
//! What does not die while [`PATIENCE`] passes without any death is not going to: it waits in the kernel without hearing signals, its
//! cgroup is frozen, or it is another user's. Then the minder ends without it.
//!
//! A minder is a fork of a program that may have other threads, so it makes only system calls, and allocates
//! nothing. It closes every descriptor at once: it must keep neither a program's output open nor the lock of
//! a lease.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::child;

/// What tells a minder to kill everything and end.
pub const END: libc::c_int = libc::SIGTERM;

/// How long a minder goes on killing when nothing dies.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How often it kills again what has not died.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// Bytes that are read at a time of the list of children.
const LIST_BYTES: usize = 4096;

/// On the board: the root has ended by itself.
const ROOT_ENDED: u32 = 1;
/// On the board: the minder has killed the root, or never had one.
const ROOT_KILLED: u32 = 2;

/// What a minder of a tree is doing, as the board says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Doing {
    /// Waiting.
    Minding = 0,
    /// Killing, because it was told to or pagelab is dead.
    Ending = 1,
    /// Killing, because the root has had its time.
    TimeIsUp = 2,
}

/// What a tree's minder writes and pagelab reads, in memory that both have.
#[repr(C)]
struct Board {
    /// A [`Doing`].
    doing: AtomicU32,
    /// Whether the tree has ended, and so `used` is written.
    ended: AtomicU32,
    /// Whether something would not die.
    stuck: AtomicU32,
    /// What all processes of the tree used that somebody waited for.
    used: libc::rusage,
    /// When the minder saw the root's end, in nanoseconds of CLOCK_MONOTONIC.
    root_end_ns: AtomicU64,
    /// How it ended, as wait(2) has it.
    root_status: AtomicI32,
    /// [`ROOT_ENDED`] once these two are written, [`ROOT_KILLED`] where they never will be; a futex.
    root_ended: AtomicU32,
}

thread_local! {
    /// The board of the tree that this thread traces.
    static BOARD: Cell<Option<NonNull<Board>>> = const { Cell::new(None) };
}

/// Whether the tree that this thread traces is being killed.
pub fn is_ending() -> bool {
    // SAFETY: the board is mapped for as long as it stands there.
    BOARD.get().is_some_and(|board| unsafe { board.as_ref() }.doing.load(Ordering::SeqCst) != Doing::Minding as u32)
}

/// The minder of a tree that the calling thread traces. It dies with that thread.
#[derive(Debug)]
pub struct Minder {
    process: libc::pid_t,
    board: NonNull<Board>,
}

impl Minder {
    /// Forks a minder, and by it the process that becomes the root of the tree by `root`. After `limit` the minder kills the
    /// tree, if the root still lives. A root that restores a terminal when pagelab is gone gets a moment for that before.
    ///
    /// # Errors
    /// No process, no memory, no descriptor.
    ///
    /// # Safety
    /// `root` runs in a process that fork has just made of one that may have other threads: it may make
    /// system calls only.
    pub unsafe fn start(
        limit: Option<Duration>,
        restores_terminal: bool,
        root: impl FnOnce(),
    ) -> io::Result<(Minder, libc::pid_t)> {
        let board = map_board()?;
        let mut minder = Minder { process: 0, board };
        let (answer, answers) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        // SAFETY: the child only makes system calls, and does not return.
        minder.process = unsafe {
            let pagelab = libc::getpid();
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => match split(pagelab) {
                    Ok(None) => {
                        root();
                        libc::_exit(libc::EXIT_FAILURE)
                    }
                    Ok(Some(root)) => {
                        tell(&answers, root);
                        mind_tree(root, deadline, restores_terminal, board)
                    }
                    Err(error) => {
                        tell(&answers, -error.raw_os_error().unwrap_or(libc::EIO));
                        libc::_exit(libc::EXIT_FAILURE)
                    }
                },
                minder => minder,
            }
        };
        drop(answers);
        let mut root = [0; 4];
        let heard = io::Read::read_exact(&mut std::fs::File::from(answer), &mut root);
        match (heard, libc::pid_t::from_ne_bytes(root)) {
            (Ok(()), root) if root > 0 => {
                BOARD.set(Some(board));
                Ok((minder, root))
            }
            (heard, errno) => {
                minder.wait();
                Err(heard.err().unwrap_or_else(|| io::Error::from_raw_os_error(-errno)))
            }
        }
    }

    /// Its process, a child of the thread that started it.
    pub fn process(&self) -> libc::pid_t {
        self.process
    }

    /// Tells it to kill the tree. To be called before it was waited for.
    pub fn end(&self) {
        // SAFETY: plain system calls on a child that was not waited for. It may have been stopped.
        unsafe {
            libc::kill(self.process, END);
            libc::kill(self.process, libc::SIGCONT);
        }
    }

    /// Waits for its end.
    pub fn wait(&self) {
        // SAFETY: a null pointer says that the status is not wanted.
        while unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::__WALL) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }

    /// Waits until the root or the minder has ended, for at most so long: how the root ended, as wait(2) has it, and when, in
    /// nanoseconds of [`monotonic_ns`]; `None` where it was killed by the minder, or lives. For a root that nobody traces.
    pub fn wait_for_root(&self, patience: Duration) -> Option<(libc::c_int, u64)> {
        let board = self.board();
        let seen = || board.root_ended.load(Ordering::SeqCst);
        if seen() == 0 {
            let left = libc::timespec {
                tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: patience.subsec_nanos().into(),
            };
            // SAFETY: the word lies on the board, which lives as long as `self`.
            unsafe { libc::syscall(libc::SYS_futex, board.root_ended.as_ptr(), libc::FUTEX_WAIT, 0, &raw const left) };
        }
        (seen() == ROOT_ENDED)
            .then(|| (board.root_status.load(Ordering::SeqCst), board.root_end_ns.load(Ordering::SeqCst)))
    }

    /// Whether the tree has ended, and the minder with it, or the minder was killed.
    pub fn is_over(&self) -> bool {
        // SAFETY: the structure is live; the minder is this thread's child and is not waited for by this.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            libc::waitid(libc::P_PID, self.process as libc::id_t, &raw mut info, flags) == -1 || info.si_pid() != 0
        }
    }

    /// Whether it killed the tree because the root had had its time.
    pub fn time_is_up(&self) -> bool {
        self.board().doing.load(Ordering::SeqCst) == Doing::TimeIsUp as u32
    }

    /// Whether it ended without something that would not die.
    pub fn is_stuck(&self) -> bool {
        self.board().stuck.load(Ordering::SeqCst) != 0
    }

    /// What the tree used; `None` as long as it has not ended, and where the minder was killed.
    pub fn used(&self) -> Option<libc::rusage> {
        let board = self.board();
        (board.ended.load(Ordering::SeqCst) != 0).then_some(board.used)
    }

    fn board(&self) -> &Board {
        // SAFETY: the board lives as long as `self`. What is not atomic in it is written before `ended` says so, and is
        // read after.
        unsafe { self.board.as_ref() }
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        if BOARD.get() == Some(self.board) {
            BOARD.set(None);
        }
        // SAFETY: the mapping is this value's own and is not used again.
        unsafe { libc::munmap(self.board.as_ptr().cast(), size_of::<Board>()) };
    }
}

fn map_board() -> io::Result<NonNull<Board>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; zeros are a board.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Board>(), protection, flags, -1, 0) };
    NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)
}

/// Splits a process that is about to execute its program: this one stays as the minder, and the function
/// returns in a child of it, which leads a process group of its own. `pagelab` is the process that both shall not
/// outlive.
///
/// # Errors
/// Those of prctl(2) and fork(2).
///
/// # Safety
/// Only in a process that fork has just made and that has one thread, as in `CommandExt::pre_exec`.
pub unsafe fn step_between(pagelab: libc::pid_t) -> io::Result<()> {
    // SAFETY: plain system calls; the child goes on as the caller's process.
    unsafe {
        match split(pagelab)? {
            None => {
                // It fails where the process leads a session, and so a group, already.
                libc::setpgid(0, 0);
                done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            }
            Some(helper) => mind_helper(helper),
        }
    }
}

/// Makes this process a minder with every signal blocked, and forks: returns the child in the minder, and `None` in the
/// child, whose signals are as before.
///
/// # Safety
/// As for [`step_between`].
unsafe fn split(pagelab: libc::pid_t) -> io::Result<Option<libc::pid_t>> {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        // Where it is ignored, children are not waited for.
        let on_child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        done(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        done(libc::prctl(libc::PR_SET_PDEATHSIG, END))?;
        if libc::getppid() != pagelab {
            libc::_exit(libc::EXIT_FAILURE); // it died before the line above
        }
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                libc::signal(libc::SIGCHLD, on_child);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(None)
            }
            child => Ok(Some(child)),
        }
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// Only in a process that fork has just made.
unsafe fn tell(answers: &std::os::fd::OwnedFd, number: libc::pid_t) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the bytes are live. A pipe takes so few of them whole.
    unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(answers), bytes.as_ptr().cast(), bytes.len()) };
}

/// The life of a tree's minder, with every signal blocked.
///
/// # Safety
/// As for [`step_between`]; the board is mapped.
unsafe fn mind_tree(root: libc::pid_t, deadline: Option<Instant>, restores_terminal: bool, board: NonNull<Board>) -> ! {
    // SAFETY: plain system calls on memory of this function and on the board, of which this process alone writes.
    unsafe {
        child::close_from(0);
        let board = board.as_ptr();
        let mut deadline = deadline;
        loop {
            match reap(|ended| ended == root) {
                Reaped::Watched(status) => {
                    deadline = None;
                    (*board).root_status.store(status, Ordering::SeqCst);
                    (*board).root_end_ns.store(monotonic_ns(), Ordering::SeqCst);
                    tell_of_root(board, ROOT_ENDED);
                    continue;
                }
                Reaped::Others => {}
                Reaped::Last => break,
            }
            let doing = match wait_for_signal(deadline) {
                Some(END) => Doing::Ending,
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => Doing::TimeIsUp,
                _ => continue,
            };
            // The tracer must know it before the first of them is dead.
            (*board).doing.store(doing as u32, Ordering::SeqCst);
            let until = Instant::now().checked_add(KILL_AGAIN * 10).filter(|_| restores_terminal);
            while until.is_some_and(|until| Instant::now() < until)
                && matches!(reap(|ended| ended == root), Reaped::Others)
            {
                wait_for_signal(until);
            }
            (*board).stuck.store(u32::from(!kill_all()), Ordering::SeqCst);
            break;
        }
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut (*board).used);
        (*board).ended.store(1, Ordering::SeqCst);
        if (*board).root_ended.load(Ordering::SeqCst) == 0 {
            tell_of_root(board, ROOT_KILLED);
        }
        libc::_exit(libc::EXIT_SUCCESS)
    }
}

/// CLOCK_MONOTONIC in nanoseconds, the same in every process.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes what became of the root, and wakes who waits for that.
///
/// # Safety
/// The board is mapped.
unsafe fn tell_of_root(board: *mut Board, what: u32) {
    // SAFETY: as promised.
    unsafe {
        (*board).root_ended.store(what, Ordering::SeqCst);
        libc::syscall(libc::SYS_futex, (*board).root_ended.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX);
    }
}

/// The life of a helper's minder, with every signal blocked.
///
/// # Safety
/// As for [`step_between`].
unsafe fn mind_helper(helper: libc::pid_t) -> ! {
    // SAFETY: plain system calls on memory of this function.
    unsafe {
        child::close_from(0);
        loop {
            // A group that has lost its leader keeps its number from being given again only while it has members.
            let before = |ended| {
                if ended == helper {
                    libc::kill(-helper, libc::SIGKILL);
                }
                ended == helper
            };
            if let Reaped::Watched(status) = reap(before) {
                kill_all();
                child::end_as(status);
            }
            if wait_for_signal(None) == Some(END) {
                libc::kill(-helper, libc::SIGKILL);
                libc::kill(helper, libc::SIGKILL);
                kill_all();
                child::end_as(libc::SIGKILL);
            }
        }
    }
}

/// What waiting for children gave.
enum Reaped {
    /// The watched one has ended, with this status. There may be more.
    Watched(libc::c_int),
    /// Some are left, and none of them has ended.
    Others,
    /// None is left.
    Last,
}

/// Waits for all that has ended, up to a watched one. `watched` hears of each child before it is waited for.
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent but the board.
unsafe fn reap(watched: impl Fn(libc::pid_t) -> bool) -> Reaped {
    // SAFETY: the structures are live local variables; a child that was not waited for has its id.
    unsafe {
        loop {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
            // The only error is ECHILD: signals are blocked, so nothing interrupts.
            if libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == -1 {
                return Reaped::Last;
            }
            let ended = info.si_pid();
            if ended == 0 {
                return Reaped::Others;
            }
            let is_watched = watched(ended);
            let mut status = 0;
            libc::waitpid(ended, &raw mut status, libc::__WALL);
            if is_watched {
                return Reaped::Watched(status);
            }
        }
    }
}

/// Waits for the end of a child, for [`END`], or until a moment. The signal; `None` where there was none.
///
/// # Safety
/// Called in the minder only, where every signal is blocked.
unsafe fn wait_for_signal(until: Option<Instant>) -> Option<libc::c_int> {
    // SAFETY: the structures are live local variables.
    let signal = unsafe {
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
        libc::sigaddset(&raw mut wanted, END);
        match until {
            None => libc::sigwaitinfo(&raw const wanted, std::ptr::null_mut()),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let left = libc::timespec {
                    tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                };
                libc::sigtimedwait(&raw const wanted, std::ptr::null_mut(), &raw const left)
            }
        }
    };
    (signal > 0).then_some(signal)
}

/// Kills children, and what becomes a child by that, until there is none. Gives up where none of them may be killed (a
/// setuid program of another user), and after [`PATIENCE`] without a death. Whether none is left. (A kernel without
/// CONFIG_PROC_CHILDREN lists none: a tree's tracer kills them all the same.)
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent but the board.
unsafe fn kill_all() -> bool {
    // SAFETY: the children are this process's own and were not waited for, so the ids are theirs.
    unsafe {
        let last_death = Cell::new(Instant::now());
        let died = |_| {
            last_death.set(Instant::now());
            false
        };
        loop {
            if matches!(reap(died), Reaped::Last) {
                return true;
            }
            let (mut killed, mut refused) = (false, false);
            for_each_child(|child| match libc::kill(child, libc::SIGKILL) {
                0 => killed = true,
                _ => refused = true,
            });
            if refused && !killed || last_death.get().elapsed() >= PATIENCE {
                return false;
            }
            wait_for_signal(Instant::now().checked_add(KILL_AGAIN));
        }
    }
}

/// Calls a function for the ids in /proc/thread-self/children, where there is such a list.
///
/// # Safety
/// Called in the minder only, a process of one thread that shares nothing with its parent but the board.
unsafe fn for_each_child(mut each: impl FnMut(libc::pid_t)) {
    // SAFETY: the name is a C string, the buffer is live and its length is given.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list == -1 {
            return;
        }
        let mut buffer = [0u8; LIST_BYTES];
        let mut id: libc::pid_t = 0;
        loop {
            let count = libc::read(list, buffer.as_mut_ptr().cast(), buffer.len());
            for byte in buffer.iter().take(usize::try_from(count).unwrap_or(0)) {
                match byte {
                    b'0'..=b'9' => id = id * 10 + libc::pid_t::from(byte - b'0'),
                    _ => each(std::mem::take(&mut id)),
                }
            }
            if count <= 0 {
                libc::close(list);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell under a minder.
    fn minded(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { command.pre_exec(move || step_between(here)) };
        command
    }

    fn status(line: &str) -> ExitStatus {
        minded(line).status().unwrap()
    }

    fn exists(id: &str) -> bool {
        std::path::Path::new("/proc").join(id.trim()).exists()
    }

    #[test]
    fn the_minder_ends_as_its_client() {
        assert_eq!(status("exit 7").code(), Some(7));
        assert_eq!(status("kill -SEGV $$").signal(), Some(libc::SIGSEGV));
        assert_eq!(status("kill -KILL $$").signal(), Some(libc::SIGKILL));
        assert_eq!(minded("echo said").output().unwrap().stdout, b"said\n", "and keeps no output open");
        let mut missing = Command::new("/no/such/program");
        let here = std::process::id() as libc::pid_t;
        // SAFETY: called between fork and exec.
        unsafe { missing.pre_exec(move || step_between(here)) };
        assert_eq!(missing.status().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// A daemon's way to get out of sight: a session of its own, and no parent.
    const HIDES: &str = "setsid sh -c 'sleep 1000 >/dev/null & echo $!; exec >/dev/null; wait' & ";

    #[test]
    fn nothing_outlives_the_client() {
        let output = minded(&format!("{HIDES} sleep 0.3")).output().unwrap();
        let id = String::from_utf8(output.stdout).unwrap();
        assert!(!id.trim().is_empty() && !exists(&id), "{id}");
    }

    #[test]
    fn a_minder_that_is_told_to_end_leaves_nothing() {
        use std::io::{BufRead, BufReader};
        let since = Instant::now();
        let mut minder = minded(&format!("{HIDES} sleep 1000")).stdout(Stdio::piped()).spawn().unwrap();
        let mut id = String::new();
        BufReader::new(minder.stdout.take().unwrap()).read_line(&mut id).unwrap();
        assert!(exists(&id));
        // SAFETY: a plain system call on a child that was not waited for.
        unsafe { libc::kill(minder.id() as libc::pid_t, END) };
        assert_eq!(minder.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!exists(&id) && since.elapsed() < Duration::from_secs(20));
    }
}
