//! Handles SIGINT, SIGTERM and SIGHUP of pagelab itself, and forwards them to the running program.
//!
//! wait4(2) cannot wait for a flag. So the handler itself forwards the signal, to the program or to the subreaper of its tree
//! ([`crate::subreaper`]). The end of that process then wakes the tracer, so there is no race between testing a flag and waiting.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::subreaper;

/// The signals that ask pagelab to stop.
pub const CAUGHT: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Seconds after which pagelab exits in any case, counted from the kill of the program ([`Forward::Kill`]): longer than the
/// subreaper keeps killing.
const EXIT_TIMEOUT_S: libc::c_uint = subreaper::NO_DEATH_TIMEOUT.as_secs() as libc::c_uint + 5;

/// The last signal that arrived; 0: none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);
/// The running program.
static PROGRAM: SignalTarget = SignalTarget::empty();
/// The subreaper of the running program's tree.
static SUBREAPER: SignalTarget = SignalTarget::empty();
/// The signal that is sent to the program; 0: the one that arrived.
static FORWARDED: AtomicI32 = AtomicI32::new(0);

/// Whether the program has a session of its own, so that pagelab's terminal does not signal it.
static HAS_OWN_SESSION: AtomicBool = AtomicBool::new(false);
/// Whether pagelab is to stop as soon as the program does.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// How signals from pagelab's terminal reach the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// The kernel sends them: the program is in pagelab's session.
    Shared,
    /// pagelab sends them: the program has a session of its own, without a terminal.
    Own,
    /// The program has its own terminal, to which keys are relayed; pagelab passes on signals that are sent to itself.
    OnTerminal,
}

/// What the program gets when pagelab is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The signal that arrived. If the terminal sent it, a program in pagelab's session has received it already, and for a program
    /// in a session of its own the whole process group gets it. If the program has ended, the processes that outlive it are killed.
    Same,
    /// SIGKILL for its whole tree: the trial is lost anyway.
    Kill,
}

/// A process to which a signal handler can send signals.
struct SignalTarget {
    /// PID; 0: none.
    process: AtomicI32,
    /// A pidfd of the same process, which stays valid if the PID is reused; -1: none.
    descriptor: AtomicI32,
}

impl SignalTarget {
    const fn empty() -> SignalTarget {
        SignalTarget { process: AtomicI32::new(0), descriptor: AtomicI32::new(-1) }
    }

    fn set(&self, process: libc::pid_t) {
        // SAFETY: a plain system call. Before Linux 5.3 it fails, and only the PID is used.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) } as i32;
        self.descriptor.store(descriptor, Ordering::SeqCst);
        self.process.store(process, Ordering::SeqCst);
    }

    fn clear(&self) {
        self.process.store(0, Ordering::SeqCst);
        let descriptor = self.descriptor.swap(-1, Ordering::SeqCst);
        if descriptor >= 0 {
            // SAFETY: the descriptor is this module's own and was just taken out of it.
            unsafe { libc::close(descriptor) };
        }
    }

    fn process(&self) -> Option<libc::pid_t> {
        Some(self.process.load(Ordering::SeqCst)).filter(|process| *process != 0)
    }

    fn send(&self, signal: i32) {
        let (descriptor, process) = (self.descriptor.load(Ordering::SeqCst), self.process.load(Ordering::SeqCst));
        // SAFETY: plain system calls, which signal handlers may make; a descriptor that was closed meanwhile is refused.
        unsafe {
            if descriptor >= 0 {
                libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, 0, 0);
            } else if process > 0 {
                libc::kill(process, signal);
            }
        }
    }
}

extern "C" fn handle(signal: libc::c_int, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    /// `si_code` of a signal from the kernel. A key of a terminal makes the kernel signal the whole foreground group.
    const SI_KERNEL: i32 = 0x80;
    ARRIVED.store(signal, Ordering::SeqCst);
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let from_terminal = unsafe { (*info).si_code } == SI_KERNEL;
    forward(signal, from_terminal);
}

/// Forwards a signal that arrived. Async-signal-safe.
fn forward(signal: i32, from_terminal: bool) {
    match FORWARDED.load(Ordering::SeqCst) {
        0 if PROGRAM.process().is_none() => end_tree(),
        0 if from_terminal && HAS_OWN_SESSION.load(Ordering::SeqCst) => send_to_group(signal),
        0 if from_terminal => {}
        0 => PROGRAM.send(signal),
        kill => {
            PROGRAM.send(kill);
            end_tree();
            // SAFETY: a plain system call, which signal handlers may make.
            unsafe { libc::alarm(EXIT_TIMEOUT_S) };
        }
    }
}

/// pagelab did not end in time: it writes to a terminal that accepts no output (Ctrl-S), or waits for a disk. It can
/// exit here: the watchdog restores the leased settings, the subreaper kills the running processes, and every completed
/// trial is stored.
extern "C" fn give_up(_signal: libc::c_int) {
    // SAFETY: a plain system call, which signal handlers may make.
    unsafe { libc::_exit(128 + ARRIVED.load(Ordering::SeqCst)) };
}

/// Handler of SIGTSTP (Ctrl-Z). It stops a program that has a session of its own, because pagelab's terminal does not.
extern "C" fn handle_stop(_signal: libc::c_int) {
    IS_STOPPING.store(true, Ordering::SeqCst);
    send_to_group(libc::SIGSTOP);
}

/// Sends a signal to the process group of the program, which is the group's leader.
fn send_to_group(signal: i32) {
    if let Some(program) = PROGRAM.process() {
        // SAFETY: a plain system call, which signal handlers may make.
        unsafe { libc::kill(-program, signal) };
    }
}

fn end_tree() {
    SUBREAPER.send(subreaper::END);
    SUBREAPER.send(libc::SIGCONT); // it may have been stopped
}

/// Sends a signal to the running program, if there is one.
pub fn send(signal: i32) {
    PROGRAM.send(signal);
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on; signals that are ignored (nohup) stay ignored.
pub fn catch(forward: Forward) -> io::Result<()> {
    FORWARDED.store(if forward == Forward::Kill { libc::SIGKILL } else { 0 }, Ordering::SeqCst);
    CAUGHT.into_iter().try_for_each(catch_one)?;
    set_action(libc::SIGALRM, give_up as *const () as usize, 0)
}

fn catch_one(signal: i32) -> io::Result<()> {
    if is_ignored(signal) {
        return Ok(());
    }
    set_action(signal, handle as *const () as usize, libc::SA_SIGINFO)
}

/// Sets the action of a signal: a handler of this module, or SIG_DFL.
fn set_action(signal: i32, handler: libc::sighandler_t, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the handlers only use atomics and system calls.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts a thread that waits for one of [`CAUGHT`], calls `report` with it, and then ends the process by that signal. This is for
/// programs whose threads block in calls that a handler could not end. Call it before other threads start: they inherit the signal
/// mask that blocks these signals. Signals that are ignored (nohup) stay ignored.
pub fn call_on_signal(report: impl FnOnce(Signal) + Send + 'static) -> io::Result<()> {
    let mut awaited = SigSet::empty();
    CAUGHT.into_iter().filter(|signal| !is_ignored(*signal)).for_each(|signal| {
        awaited.add(Signal::try_from(signal).expect("the signals that are caught have names"));
    });
    let before = awaited.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let wait = move || {
        // sigwait(3) fails only for numbers that are not signals.
        let signal = awaited.wait().expect("the signals that are caught exist");
        report(signal);
        let _ = SigSet::from(signal).thread_unblock();
        let _ = nix::sys::signal::raise(signal);
    };
    let started = std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop);
    if started.is_err() {
        // Without the thread, the signals must end the process as before.
        before.thread_set_mask()?;
    }
    started
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: with no new action the call only writes the old one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The signal that arrived last, if any did.
pub fn arrived() -> Option<i32> {
    match ARRIVED.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// Forwards signals to a program in pagelab's session that was not waited for yet. A signal that arrived earlier is sent now.
pub fn forward_to(program: libc::pid_t) {
    forward_in_session(program, Session::Shared);
}

/// As [`forward_to`], for a program in the given session. In a session of its own the program leads its process group.
pub fn forward_in_session(program: libc::pid_t, session: Session) {
    HAS_OWN_SESSION.store(session != Session::Shared, Ordering::SeqCst);
    PROGRAM.set(program);
    if session == Session::Own && !is_ignored(libc::SIGTSTP) {
        // SIGTSTP can have a handler, so this does not fail.
        let _ = set_action(libc::SIGTSTP, handle_stop as *const () as usize, 0);
    }
    if let Some(signal) = arrived() {
        forward(signal, false);
    }
}

/// Forwards signals to the subreaper of a program's tree. Call this before [`forward_to`].
pub fn forward_to_subreaper(subreaper: libc::pid_t) {
    SUBREAPER.set(subreaper);
}

/// Call this when the program has stopped. If pagelab caused the stop, pagelab stops too, and resumes the
/// program when it is resumed itself.
pub fn program_stopped() {
    if IS_STOPPING.swap(false, Ordering::SeqCst) {
        stop_self();
        let _ = set_action(libc::SIGTSTP, handle_stop as *const () as usize, 0);
        send_to_group(libc::SIGCONT);
    }
}

/// Stops pagelab by the default action of SIGTSTP. This has no effect in an orphaned process group, from which no process could
/// resume pagelab.
fn stop_self() {
    let _ = set_action(libc::SIGTSTP, libc::SIG_DFL, 0);
    let _ = nix::sys::signal::raise(Signal::SIGTSTP);
}

/// Stops forwarding signals to the program. If pagelab was about to stop with it, pagelab stops now.
pub fn stop_forwarding() {
    let had_target = PROGRAM.process().is_some();
    PROGRAM.clear();
    if had_target && !is_ignored(libc::SIGTSTP) {
        let _ = set_action(libc::SIGTSTP, libc::SIG_DFL, 0);
    }
    if IS_STOPPING.swap(false, Ordering::SeqCst) {
        stop_self(); // the program ended before it could stop
    }
}

/// Stops forwarding signals to the subreaper.
pub fn stop_forwarding_to_subreaper() {
    SUBREAPER.clear();
}

/// PID of the program to which signals are forwarded, for messages and for /proc. To signal the program use [`send`].
pub fn target() -> Option<libc::pid_t> {
    PROGRAM.process()
}

/// Restores the default action of SIGINT, SIGTERM and SIGHUP. Call it once all leased settings have been restored.
pub fn restore_defaults() {
    for signal in CAUGHT.into_iter().filter(|signal| !is_ignored(*signal)) {
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
