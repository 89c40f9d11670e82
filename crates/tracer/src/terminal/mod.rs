//! Gives a command that runs as another user a terminal of its own, relayed to pagelab's, as sudo's `use_pty` does.
//!
//! A process that has a terminal open can write escape sequences to it. If the terminal is also the controlling one of the
//! process, the process can insert input (TIOCSTI) that the shell of the terminal's owner then reads. So a command of another
//! user does not get pagelab's terminal: a pseudo-terminal replaces those of its standard streams that are terminals, and
//! pagelab copies between the two terminals.
//!
//! ```text
//! terminal ─ outer ─ relay (a thread of pagelab) ─ pty ─ the command, in a process group of its own
//!                          └── message ── monitor, the leader of the pty's session, parent of the command
//! ```
//!
//! The monitor has two purposes. With it, the command's process group is not orphaned (its parent is in another group of the
//! same session), so the keyboard can stop it. And only a process of the session can set the foreground group. The monitor
//! also restores the terminal's modes if pagelab is killed.

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
use outer::PagelabTerminal;
use pty::Pty;

pub use monitor::{MonitorSetup, insert_monitor};
pub use relay::Relay;

/// The terminal with which a command is started.
pub struct Terminal {
    pty: Pty,
    outer: PagelabTerminal,
    is_replaced: [bool; 3],
    ours: Channel,
    monitors: Channel,
}

impl Terminal {
    /// A terminal for a command of this user that would otherwise have these standard streams; `None` if none of them
    /// is a terminal.
    pub fn in_place_of(streams: [RawFd; 3], user: &User) -> io::Result<Option<Terminal>> {
        let is_replaced = streams.map(is_terminal);
        let Some(outer) = PagelabTerminal::of(streams, is_replaced)? else { return Ok(None) };
        let pty = Pty::open(user.uid)?;
        outer.copy_size_to(pty.ours.as_raw_fd());
        let (ours, monitors) = Channel::pair()?;
        Ok(Some(Terminal { pty, outer, is_replaced, ours, monitors }))
    }

    /// The replacement of each standard stream.
    pub fn streams(&self) -> [Option<RawFd>; 3] {
        self.is_replaced.map(|is| is.then(|| self.pty.command.as_raw_fd()))
    }

    /// The descriptors that the monitor needs.
    pub fn monitor_setup(&self) -> MonitorSetup {
        MonitorSetup {
            terminal: self.pty.command.as_raw_fd(),
            outer: self.outer.device(),
            channel: self.monitors.descriptor(),
            in_foreground: self.outer.starts_in_foreground(),
        }
    }

    /// Waits until the monitor has created the command's process. Call it after the fork. An error means that one of the
    /// monitor's first steps failed; the monitor's process has then reported which.
    pub fn started(self) -> io::Result<CommandTerminal> {
        let Terminal { pty, outer, ours, monitors, .. } = self;
        drop((monitors, pty.command)); // so that closing the other ends is noticed
        let command = ours.receive_start()?;
        Ok(CommandTerminal { command, ours, pty: pty.ours, outer })
    }
}

/// A command on its terminal, before the relay starts.
pub struct CommandTerminal {
    pub command: libc::pid_t,
    ours: Channel,
    pty: OwnedFd,
    outer: PagelabTerminal,
}

/// Whether the descriptor is a terminal's.
fn is_terminal(descriptor: RawFd) -> bool {
    // SAFETY: isatty only queries the descriptor; a closed one is no terminal.
    isatty(unsafe { BorrowedFd::borrow_raw(descriptor) }).unwrap_or(false)
}

/// Sets FD_CLOEXEC on terminals that pagelab has open other than its standard streams, so that commands do not inherit them.
pub fn set_cloexec_on_terminals() -> io::Result<()> {
    let failed = |error| io::Error::other(format!("/proc/self/fd: {error}"));
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").map_err(failed)? {
        numbers.extend(entry.map_err(failed)?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for descriptor in numbers.into_iter().filter(|number| *number > libc::STDERR_FILENO && is_terminal(*number)) {
        // SAFETY: a plain system call; it only affects the descriptor at an exec.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}
