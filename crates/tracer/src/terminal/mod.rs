//! A terminal of its own for a command that runs as another user, relayed to pagelab's, as sudo's `use_pty` does.
//!
//! Who has a terminal open can write escape sequences to it, and whose controlling terminal it is can put words into
//! its input (TIOCSTI) that the shell of its owner reads. So a command of another user gets none of pagelab's: those
//! of its standard streams that are terminals become a pseudo-terminal, and pagelab copies between the two.
//!
//! ```text
//! terminal ─ outer ─ relay (a thread of pagelab) ─ pty ─ the command, in a process group of its own
//!                          └── message ── monitor, the leader of the pty's session, parent of the command
//! ```
//!
//! The monitor is there because a process group whose parent is in no other group of the session cannot be stopped
//! from the keyboard, and because only a process of the session can say which group is in front. It also gives the
//! terminal its modes back where pagelab is killed.

mod message;
mod monitor;
mod outer;
mod pty;
mod relay;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::unistd::isatty;

use crate::user::User;
use message::Channel;
use outer::Outer;
use pty::Pty;

pub use monitor::{Wiring, step_between};
pub use relay::Relay;

/// What a command that has a terminal of its own is started with.
pub struct Terminal {
    pty: Pty,
    outer: Outer,
    is_replaced: [bool; 3],
    ours: Channel,
    monitors: Channel,
}

impl Terminal {
    /// A terminal for a command of this user that would have these standard streams; `None` where none of them is a
    /// terminal.
    ///
    /// # Errors
    /// The kernel gives no pseudo-terminal, or no descriptors.
    pub fn in_place_of(streams: [RawFd; 3], user: &User) -> io::Result<Option<Terminal>> {
        let is_replaced = streams.map(is_terminal);
        let Some(outer) = Outer::of(streams, is_replaced)? else { return Ok(None) };
        let pty = Pty::open(user.uid)?;
        outer.give_size_to(pty.ours.as_raw_fd());
        let (ours, monitors) = Channel::pair()?;
        Ok(Some(Terminal { pty, outer, is_replaced, ours, monitors }))
    }

    /// What takes the place of each standard stream.
    pub fn streams(&self) -> [Option<RawFd>; 3] {
        self.is_replaced.map(|is| is.then(|| self.pty.command.as_raw_fd()))
    }

    /// What the monitor needs.
    pub fn wiring(&self) -> Wiring {
        Wiring {
            terminal: self.pty.command.as_raw_fd(),
            outer: self.outer.device(),
            channel: self.monitors.raw(),
            in_front: self.outer.is_commands(),
        }
    }

    /// After the fork: waits until the monitor has made the command's process.
    ///
    /// # Errors
    /// There is no monitor: it could not do its first steps, and its process said which.
    pub fn started(self) -> io::Result<Attended> {
        let Terminal { pty, outer, ours, monitors, .. } = self;
        drop((monitors, pty.command)); // so that the ends of the others are seen
        let command = ours.receive_start()?;
        Ok(Attended { command, ours, pty: pty.ours, outer })
    }
}

/// A command on its terminal, not relayed yet.
pub struct Attended {
    /// Its process.
    pub command: libc::pid_t,
    ours: Channel,
    pty: OwnedFd,
    outer: Outer,
}

/// Whether the descriptor is a terminal's.
fn is_terminal(descriptor: RawFd) -> bool {
    // SAFETY: the descriptor is only asked about; a closed one is no terminal.
    isatty(unsafe { BorrowedFd::borrow_raw(descriptor) }).unwrap_or(false)
}

/// Keeps terminals that pagelab has beside its standard streams from programs that are started from now on.
///
/// # Errors
/// Which descriptors are open cannot be read.
pub fn keep_from_commands() -> io::Result<()> {
    let failed = |error| io::Error::other(format!("/proc/self/fd: {error}"));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").map_err(failed)? {
        numbers.extend(entry.map_err(failed)?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for descriptor in numbers.into_iter().filter(|number| *number > libc::STDERR_FILENO && is_terminal(*number)) {
        // SAFETY: a plain system call; all that changes is what becomes of the descriptor at an exec.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}
