//! SIGINT, SIGTERM and SIGHUP of pagelab itself, and the measured program on its leash.
//!
//! wait4(2) cannot wait for a flag. So the handler itself passes the signal on to the leashed program,
//! whose end then wakes the tracer: nothing is lost between looking at a flag and waiting.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// The last signal that arrived; 0: none.
static ARRIVED: AtomicI32 = AtomicI32::new(0);
/// The program on the leash; 0: none.
static LEASHED: AtomicI32 = AtomicI32::new(0);
/// The signal that the program gets; 0: the one that arrived.
static PASSED_ON: AtomicI32 = AtomicI32::new(0);

/// What a leashed program gets when pagelab is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassOn {
    /// The signal that arrived.
    Same,
    /// SIGKILL: the trial is lost anyway.
    Kill,
}

extern "C" fn handle(signal: libc::c_int) {
    ARRIVED.store(signal, Ordering::SeqCst);
    let (program, passed_on) = (LEASHED.load(Ordering::SeqCst), PASSED_ON.load(Ordering::SeqCst));
    if program > 0 {
        // SAFETY: kill is async-signal-safe; the program is removed from the leash when it is reaped.
        unsafe { libc::kill(program, if passed_on == 0 { signal } else { passed_on }) };
    }
}

/// Catches SIGINT, SIGTERM and SIGHUP from now on.
pub fn catch(pass_on: PassOn) -> io::Result<()> {
    PASSED_ON.store(if pass_on == PassOn::Kill { libc::SIGKILL } else { 0 }, Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only uses atomics and kill.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The signal that arrived last, if any did.
pub fn arrived() -> Option<i32> {
    match ARRIVED.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// Puts a program on the leash.
pub fn leash(program: libc::pid_t) {
    LEASHED.store(program, Ordering::SeqCst);
}

/// Takes the program off the leash.
pub fn unleash() {
    LEASHED.store(0, Ordering::SeqCst);
}

/// The program on the leash, for whoever must end it from another thread.
pub fn leashed() -> Option<libc::pid_t> {
    match LEASHED.load(Ordering::SeqCst) {
        0 => None,
        program => Some(program),
    }
}
