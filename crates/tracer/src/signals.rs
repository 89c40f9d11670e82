//! SIGINT, SIGTERM and SIGHUP of pagelab itself, and the measured program on its leash.
//!
//! wait4(2) cannot wait for a flag. So the handler itself passes the signal on, to the leashed program or to the subreaper of
//! its tree ([`crate::subreaper`]), whose end then wakes the tracer: nothing is lost between looking at a flag and waiting.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::subreaper;

/// The signals that tell pagelab to stop.
pub const CAUGHT: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Seconds after which a comparison that was told to stop ends whatever it is doing: more than the subreaper goes on killing.
const LAST_RESORT_S: libc::c_uint = subreaper::PATIENCE.as_secs() as libc::c_uint + 5;

/// The last signal that arrived; 0: none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);
/// The program that is run.
static PROGRAM: Leash = Leash::empty();
/// The subreaper of its tree.
static SUBREAPER: Leash = Leash::empty();
/// The signal that the program gets; 0: the one that arrived.
static PASSED_ON: AtomicI32 = AtomicI32::new(0);

/// Whether the program has a session of its own: then pagelab's terminal does not signal it.
static IS_APART: AtomicBool = AtomicBool::new(false);
/// Whether pagelab is to stop as soon as the program does.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Who tells the leashed program what is typed at pagelab's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// The kernel: it is in pagelab's session.
    Shared,
    /// pagelab: it has a session of its own, without a terminal.
    Own,
    /// It has a terminal of its own, to which keys are relayed; pagelab passes on what is meant for itself.
    OnTerminal,
}

/// What a leashed program gets when pagelab is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassOn {
    /// The signal that arrived, unless the terminal sent it: the program then has it already, or, in a session of its
    /// own, its whole process group gets it. What the program has left behind when it ended is killed.
    Same,
    /// SIGKILL, with its whole tree: the trial is lost anyway.
    Kill,
}

/// A process that signals can be sent to from a handler.
struct Leash {
    /// Its id; 0: none.
    process: AtomicI32,
    /// The same process as a file descriptor, which never comes to mean another one; -1: none.
    descriptor: AtomicI32,
}

impl Leash {
    const fn empty() -> Leash {
        Leash { process: AtomicI32::new(0), descriptor: AtomicI32::new(-1) }
    }

    fn put(&self, process: libc::pid_t) {
        // SAFETY: a plain system call. Before Linux 5.3 it fails, and the id alone is the leash.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) } as i32;
        self.descriptor.store(descriptor, Ordering::SeqCst);
        self.process.store(process, Ordering::SeqCst);
    }

    fn take_off(&self) {
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
        // SAFETY: plain system calls, which signal handlers may make; a descriptor that was closed meanwhile is
        // refused.
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
    /// The kernel itself sent the signal: for the keys of a terminal, to its whole foreground group.
    const SI_KERNEL: i32 = 0x80;
    ARRIVED.store(signal, Ordering::SeqCst);
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let from_terminal = unsafe { (*info).si_code } == SI_KERNEL;
    pass_on(signal, from_terminal);
}

/// Passes on a signal that arrived. Only what a signal handler may do.
fn pass_on(signal: i32, from_terminal: bool) {
    match PASSED_ON.load(Ordering::SeqCst) {
        0 if PROGRAM.process().is_none() => end_tree(),
        0 if from_terminal && IS_APART.load(Ordering::SeqCst) => send_to_group(signal),
        0 if from_terminal => {}
        0 => PROGRAM.send(signal),
        kill => {
            PROGRAM.send(kill);
            end_tree();
            // SAFETY: a plain system call, which signal handlers may make.
            unsafe { libc::alarm(LAST_RESORT_S) };
        }
    }
}

/// pagelab has not ended in all that time: it writes to a terminal that takes nothing (Ctrl-S), or waits for a disk. The watchdog
/// puts back what is on loan, the subreaper ends what still runs, and each trial that was over is stored.
extern "C" fn give_up(_signal: libc::c_int) {
    // SAFETY: a plain system call, which signal handlers may make.
    unsafe { libc::_exit(128 + ARRIVED.load(Ordering::SeqCst)) };
}

/// The key that stops a job: pagelab's terminal does not stop a program in another session.
extern "C" fn handle_stop(_signal: libc::c_int) {
    IS_STOPPING.store(true, Ordering::SeqCst);
    send_to_group(libc::SIGSTOP);
}

/// Sends the process group of the leashed program, which leads it, a signal.
fn send_to_group(signal: i32) {
    if let Some(program) = PROGRAM.process() {
        // SAFETY: a plain system call, which signal handlers may make.
        unsafe { libc::kill(-program, signal) };
    }
}

fn end_tree() {
    SUBREAPER.send(subreaper::END);
    SUBREAPER.send(libc::SIGCONT); // somebody may have stopped it
}

/// Sends the leashed program a signal; nothing happens where none is on the leash.
pub fn send(signal: i32) {
    PROGRAM.send(signal);
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on; those that are ignored (nohup) stay so.
pub fn catch(pass_on: PassOn) -> io::Result<()> {
    PASSED_ON.store(if pass_on == PassOn::Kill { libc::SIGKILL } else { 0 }, Ordering::SeqCst);
    CAUGHT.into_iter().try_for_each(catch_one)?;
    set_action(libc::SIGALRM, give_up as *const () as usize, 0)
}

fn catch_one(signal: i32) -> io::Result<()> {
    if is_ignored(signal) {
        return Ok(());
    }
    set_action(signal, handle as *const () as usize, libc::SA_SIGINFO)
}

/// Sets what a signal does: a handler of this module, or SIG_DFL.
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

/// Has `say` called when one of [`CAUGHT`] arrives, on a thread that waits for nothing else; the process then ends
/// by that signal. For programs whose threads stand in calls that no handler could end. To be called before
/// other threads start: they inherit that the signals are not for them. Those that are ignored (nohup) stay so.
///
/// # Errors
/// The kernel refuses the mask or the thread.
pub fn announce(say: impl FnOnce(Signal) + Send + 'static) -> io::Result<()> {
    let mut awaited = SigSet::empty();
    CAUGHT.into_iter().filter(|signal| !is_ignored(*signal)).for_each(|signal| {
        awaited.add(Signal::try_from(signal).expect("the signals that are caught have names"));
    });
    let before = awaited.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let wait = move || {
        // sigwait(3) refuses numbers that are no signals, and nothing else.
        let signal = awaited.wait().expect("the signals that are caught exist");
        say(signal);
        let _ = SigSet::from(signal).thread_unblock();
        let _ = nix::sys::signal::raise(signal);
    };
    let started = std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop);
    if started.is_err() {
        // Nobody waits for them, so they end this thread as before.
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

/// Puts a program of pagelab's session, which was not waited for yet, on the leash. A signal that came before reaches it
/// now.
pub fn leash(program: libc::pid_t) {
    leash_in(program, Session::Shared);
}

/// The same for a program in this session. With one of its own it leads its process group.
pub fn leash_in(program: libc::pid_t, session: Session) {
    IS_APART.store(session != Session::Shared, Ordering::SeqCst);
    PROGRAM.put(program);
    if session == Session::Own && !is_ignored(libc::SIGTSTP) {
        // It is a signal that has an action, so it is not refused.
        let _ = set_action(libc::SIGTSTP, handle_stop as *const () as usize, 0);
    }
    if let Some(signal) = arrived() {
        pass_on(signal, false);
    }
}

/// Puts the subreaper of a program's tree on the leash; to be done before the program is.
pub fn leash_subreaper(subreaper: libc::pid_t) {
    SUBREAPER.put(subreaper);
}

/// To be called when the leashed program is seen to have stopped: where that was for pagelab's sake, pagelab stops too,
/// and when it goes on, so does the program.
pub fn program_stopped() {
    if IS_STOPPING.swap(false, Ordering::SeqCst) {
        stop_self();
        let _ = set_action(libc::SIGTSTP, handle_stop as *const () as usize, 0);
        send_to_group(libc::SIGCONT);
    }
}

/// Stops as without a handler: not at all where nobody could wake pagelab up (an orphaned process group).
fn stop_self() {
    let _ = set_action(libc::SIGTSTP, libc::SIG_DFL, 0);
    let _ = nix::sys::signal::raise(Signal::SIGTSTP);
}

/// Takes the program off the leash.
pub fn unleash() {
    let was_leashed = PROGRAM.process().is_some();
    PROGRAM.take_off();
    if was_leashed && !is_ignored(libc::SIGTSTP) {
        let _ = set_action(libc::SIGTSTP, libc::SIG_DFL, 0);
    }
    if IS_STOPPING.swap(false, Ordering::SeqCst) {
        stop_self(); // the program ended before it could stop
    }
}

/// Takes the subreaper off the leash.
pub fn unleash_subreaper() {
    SUBREAPER.take_off();
}

/// The program on the leash, for whoever asks from another thread whether it lives. It is for messages
/// and for /proc: to send it a signal there is [`send`].
pub fn leashed() -> Option<libc::pid_t> {
    PROGRAM.process()
}

/// Lets SIGINT, SIGTERM and SIGHUP end pagelab again as they end any program: what is on loan has been given back.
pub fn release() {
    for signal in CAUGHT.into_iter().filter(|signal| !is_ignored(*signal)) {
        // SAFETY: no handler is named but the system's own.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
