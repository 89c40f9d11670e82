//! [`Supervised`] runs an untraced program that is killed with all its descendants when pagelab ends.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::launch::{self, Launch, LaunchError, Started};
use crate::signals;
use crate::subreaper::{RootOutcome, Subreaper};

/// How long to wait for the program's end before checking that the subreaper still runs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A running program under a subreaper. Signals that ask pagelab to stop are forwarded to it.
///
/// Drop kills the program with its whole tree if it still runs. If it has ended, drop kills the processes that outlive it only if
/// a signal stopped pagelab; otherwise they continue.
pub struct Supervised {
    subreaper: Subreaper,
    started: Started,
}

impl Supervised {
    /// Starts a program and returns once it has been executed. Call this after [`signals::catch`], and wait on the same thread.
    pub fn start(launch: &Launch) -> Result<Supervised, LaunchError> {
        let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
        let (subreaper, started) = launch::start_supervised(launch)?;
        signals::forward_to_subreaper(subreaper.process());
        signals::forward_in_session(started.tid, started.session);
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
            if let Some(status) = self.status_within(POLL_INTERVAL) {
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
            RootOutcome::Runs => None,
            RootOutcome::Ended { status, .. } => Some(ExitStatus::from_raw(status)),
            RootOutcome::Killed => Some(ExitStatus::from_raw(libc::SIGKILL)),
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        match self.status() {
            Some(_) if signals::arrived().is_none() => self.subreaper.dismiss(),
            _ => self.subreaper.end(),
        }
        signals::stop_forwarding();
        self.subreaper.wait();
        signals::stop_forwarding_to_subreaper();
    }
}
