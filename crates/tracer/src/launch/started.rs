//! [`Started`]: a program from its fork to its exit.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use policy::Exit;

use super::error::{EXECUTE, LaunchError, exec_failed, step_failed};
use crate::ptrace::{self, Tid};
use crate::signals::{self, Session};
use crate::terminal::Relay;

/// A program. Its process waits before its exec until [`Started::release`].
pub struct Started {
    /// PID of the program.
    pub tid: Tid,
    /// How signals from pagelab's terminal reach the program.
    pub session: Session,
    /// The process to wait for: the program, or the monitor of its terminal.
    pub(super) child: Tid,
    /// Whether `child` is a child of pagelab, not of a subreaper.
    pub(super) is_own_child: bool,
    pub(super) relay: Option<Relay>,
    /// Pipe to the process: a byte lets it continue to its exec.
    pub(super) go: File,
    /// Pipe from the process: the step that failed before its exec, and the error.
    pub(super) report: File,
}

impl Started {
    pub fn release(&mut self) -> io::Result<()> {
        self.go.write_all(&[1])
    }

    /// Why the process ended before its exec; `None` if it executed the program.
    pub fn failure(&mut self, path: &Path) -> Option<LaunchError> {
        Some(match reported(&mut self.report)? {
            (step, error) if step < EXECUTE => step_failed(step, error),
            (_, error) => exec_failed(path, error),
        })
    }

    /// Waits until an untraced program exits. If pagelab caused the program to stop, pagelab stops too.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            let mut status = 0;
            // SAFETY: the status is live.
            if unsafe { libc::waitpid(self.child, &raw mut status, libc::WUNTRACED) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            } else if libc::WIFSTOPPED(status) {
                signals::program_stopped();
            } else if libc::WIFEXITED(status) {
                return Ok(Exit::Code(libc::WEXITSTATUS(status)));
            } else {
                return Ok(Exit::Signal(libc::WTERMSIG(status)));
            }
        }
    }

    fn reap(&self) {
        if self.is_own_child {
            reap(self.child);
        }
    }

    /// Call after the program's exit. Waits until the relay has shown all output and has restored pagelab's terminal.
    pub fn finish(&mut self) {
        if let Some(relay) = self.relay.take() {
            relay.finish();
            self.reap();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(relay) = self.relay.take() {
            drop(relay); // the monitor kills the processes that still run
            self.reap();
        }
    }
}

/// The step at which the process failed before its exec, and the kernel's error. `None` if it executed the program.
pub(super) fn reported(report: &mut File) -> Option<(usize, io::Error)> {
    let mut message = [0u8; 8];
    report.read_exact(&mut message).ok()?;
    let error = i32::from_le_bytes(message[4..].try_into().expect("4 bytes"));
    Some((usize::from(message[0]), io::Error::from_raw_os_error(error)))
}

fn reap(tid: Tid) {
    while let Err(error) = ptrace::wait(tid) {
        if error.kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}
