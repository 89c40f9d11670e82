//! Runs an untraced program that is killed with all its descendants when pagelab ends.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::launch::{self, Launch, LaunchError, Started};
use crate::signals;
use crate::subreaper::{Root, Subreaper};

/// How long to wait for the program's end before checking that the subreaper still runs.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A running program under a subreaper, which gets the signals that tell pagelab to stop.
///
/// Drop kills the program with its whole tree if it still runs. If it has ended, drop kills the processes that it left only if
/// a signal stopped pagelab; otherwise they continue.
pub struct Supervised {
    subreaper: Subreaper,
    started: Started,
}

impl Supervised {
    /// Starts a program and returns once it has been executed. Call this after [`signals::catch`], and wait on the same thread.
    ///
    /// # Errors
    /// [`LaunchError`]: the program cannot be executed.
    pub fn start(launch: &Launch) -> Result<Supervised, LaunchError> {
        let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
        let (subreaper, started) = launch::start_supervised(launch)?;
        signals::leash_subreaper(subreaper.process());
        signals::leash_in(started.tid, started.session);
        let mut program = Supervised { subreaper, started };
        program.started.release()?;
        program.started.failure(&path).map_or(Ok(program), Err)
    }

    /// PID of the program.
    pub fn process(&self) -> u32 {
        self.started.tid.cast_unsigned()
    }

    /// How the program ended; `None` while it runs.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status_within(Duration::ZERO)
    }

    /// Waits for the program's end.
    pub fn wait(&self) -> ExitStatus {
        loop {
            if let Some(status) = self.status_within(ASK_AGAIN) {
                return status;
            }
        }
    }

    /// Kills the program with its whole tree.
    pub fn kill(&self) {
        self.subreaper.end();
    }

    fn status_within(&self, patience: Duration) -> Option<ExitStatus> {
        match self.subreaper.wait_for_root(patience) {
            Root::Runs => None,
            Root::Ended { status, .. } => Some(ExitStatus::from_raw(status)),
            Root::Killed => Some(ExitStatus::from_raw(libc::SIGKILL)),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        match self.status() {
            Some(_) if signals::arrived().is_none() => self.subreaper.dismiss(),
            _ => self.subreaper.end(),
        }
        signals::unleash();
        self.subreaper.wait();
        signals::unleash_subreaper();
    }
}
