//! [`Ticks`]: a clock that ends the tracer's wait at regular intervals, because wait4(2) has no timeout.
//!
//! A timer sends a signal to this thread alone. The signal is blocked except while the thread waits, so no other call is
//! interrupted. A tick that arrives between the test of the flag and the wait is noticed at the next tick.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ptrace::{self, Stop, Tid};

static TICKED: AtomicBool = AtomicBool::new(false);

/// A running clock of this thread.
pub struct Ticks {
    timer: libc::timer_t,
}

extern "C" fn note_tick(_signal: libc::c_int) {
    TICKED.store(true, Ordering::Relaxed);
}

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

impl Ticks {
    /// Starts the clock. Call it on the thread that waits, and only after that thread has created its children: they would
    /// inherit the signal mask.
    ///
    /// # Errors
    /// The kernel has no timer left.
    pub fn start(interval: Duration) -> io::Result<Ticks> {
        TICKED.store(false, Ordering::Relaxed);
        // SAFETY: the structures are plain data, and the handler only stores into an atomic. Without SA_RESTART the signal
        // ends a wait.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note_tick as *const () as usize;
            check(libc::sigaction(signal(), &raw const action, std::ptr::null_mut()))?;
            set_blocked(true)?;
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal();
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            check(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer))?;
            let ticks = Ticks { timer };
            let interval =
                libc::timespec { tv_sec: interval.as_secs() as libc::time_t, tv_nsec: interval.subsec_nanos().into() };
            let times = libc::itimerspec { it_interval: interval, it_value: interval };
            check(libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()))?;
            Ok(ticks)
        }
    }

    /// Waits for an event of the tree, or for the next tick (`None`).
    ///
    /// # Errors
    /// Those of [`ptrace::wait`]; `EINTR` for a signal that is not the clock's.
    pub fn wait(&self) -> io::Result<Option<(Tid, Stop)>> {
        set_blocked(false)?;
        let waited = if TICKED.load(Ordering::Relaxed) { Ok(None) } else { ptrace::wait(-1).map(Some) };
        set_blocked(true)?;
        match waited {
            Ok(Some(event)) => Ok(Some(event)),
            Ok(None) => {
                TICKED.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: the timer is this clock's own.
        unsafe { libc::timer_delete(self.timer) };
        // A last tick may be pending; its handler does nothing but store.
        drop(set_blocked(false));
    }
}

fn set_blocked(is_blocked: bool) -> io::Result<()> {
    let how = if is_blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a live set of plain data.
    let error = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal());
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn ticks_arrive_while_a_child_runs_and_its_end_is_not_lost() {
        #[expect(clippy::zombie_processes, reason = "the clock's wait reaps it")]
        let child = Command::new("sleep").arg("0.2").spawn().unwrap();
        let since = Instant::now();
        let ticks = Ticks::start(Duration::from_millis(10)).unwrap();
        let mut count = 0;
        loop {
            match ticks.wait() {
                Ok(None) => count += 1,
                Ok(Some((tid, Stop::Exited(0)))) if tid == child.id() as Tid => break,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                other => panic!("{other:?}"),
            }
            assert!(since.elapsed() < Duration::from_secs(60));
        }
        // At least one tick: on a loaded machine ticks are merged.
        assert!(count > 0);
    }
}
