//! [`PagelabTerminal`]: pagelab's own terminal, with its descriptors, modes, size and foreground process group.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{getpgrp, tcgetpgrp};

/// pagelab's terminal as seen by the relay.
pub struct PagelabTerminal {
    /// Source of keys. If it cannot be read, it is used only for modes and size.
    input: OwnedFd,
    can_read: bool,
    /// Destination of output; `None` if no stream on the terminal is writable.
    output: Option<OwnedFd>,
    command_may_read: bool,
}

impl PagelabTerminal {
    /// The terminal behind these standard streams; `None` if none of them is a terminal.
    pub fn of(streams: [RawFd; 3], is_terminal: [bool; 3]) -> io::Result<Option<PagelabTerminal>> {
        let terminals = |order: [usize; 3]| order.into_iter().filter(|at| is_terminal[*at]).map(|at| streams[at]);
        let Some(first) = terminals([0, 1, 2]).next() else { return Ok(None) };
        let output = terminals([1, 2, 0]).find(|stream| access_mode(*stream) != OFlag::O_RDONLY);
        let output = output.map(duplicate).transpose()?;
        // A command whose input is not a terminal may still read from its terminal, for example a password.
        let (input, can_read) = if is_terminal[0] {
            (duplicate(streams[0])?, access_mode(streams[0]) != OFlag::O_WRONLY)
        } else {
            match controlling_terminal() {
                Some(terminal) => (terminal, true),
                None => (duplicate(first)?, false),
            }
        };
        // In a pipeline the keys may be meant for another command. Then the command gets the foreground only when it
        // reads, as under sudo.
        let command_may_read = is_terminal[0] && !is_pipe(streams[1]);
        Ok(Some(PagelabTerminal { input, can_read, output, command_may_read }))
    }

    /// The descriptor on which modes are set.
    pub fn device(&self) -> RawFd {
        self.input.as_raw_fd()
    }

    /// The descriptor from which keys are read; `None` if it is not readable.
    pub fn input(&self) -> Option<RawFd> {
        self.can_read.then(|| self.device())
    }

    /// The descriptor to which output is written.
    pub fn output(&self) -> Option<RawFd> {
        self.output.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Whether the command may read keys from the start, without first being stopped by SIGTTIN.
    pub fn starts_in_foreground(&self) -> bool {
        self.command_may_read && self.may_use()
    }

    /// Whether pagelab may read the terminal and set its modes: its process group is in the foreground, or the terminal
    /// is not its controlling one.
    pub fn may_use(&self) -> bool {
        match tcgetpgrp(&self.input) {
            Ok(group) => group == getpgrp(),
            Err(error) => error == Errno::ENOTTY,
        }
    }

    /// The terminal's current modes; `None` if it no longer exists.
    pub fn modes(&self) -> Option<libc::termios> {
        modes(self.device())
    }

    /// Sets the terminal's modes immediately (TCSANOW).
    pub fn set_modes(&self, modes: &libc::termios) {
        // SAFETY: the modes are live.
        unsafe { libc::tcsetattr(self.device(), libc::TCSANOW, modes) };
    }

    /// Copies the terminal's size to another terminal.
    pub fn copy_size_to(&self, other: RawFd) {
        // SAFETY: the structure is live, and plain data.
        unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            if libc::ioctl(self.device(), libc::TIOCGWINSZ, &raw mut size) == 0 {
                libc::ioctl(other, libc::TIOCSWINSZ, &raw const size);
            }
        }
    }
}

/// The modes of a terminal, using only system calls; `None` if the descriptor is not a terminal.
pub fn modes(terminal: RawFd) -> Option<libc::termios> {
    // SAFETY: the descriptor is only queried; the structure is live, and plain data.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        (libc::tcgetattr(terminal, &raw mut modes) == 0).then_some(modes)
    }
}

/// The modes in which keys pass unchanged.
pub fn raw(modes: &libc::termios) -> libc::termios {
    let mut raw = *modes;
    // SAFETY: the modes are live.
    unsafe { libc::cfmakeraw(&raw mut raw) };
    raw
}

/// Whether two sets of modes are equal, apart from the speeds and the line discipline.
pub fn are_equal(one: &libc::termios, other: &libc::termios) -> bool {
    let flags = |modes: &libc::termios| (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag);
    flags(one) == flags(other) && one.c_cc == other.c_cc
}

#[expect(clippy::disallowed_methods, reason = "only root can change /dev")]
fn controlling_terminal() -> Option<OwnedFd> {
    let opened = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty");
    opened.ok().map(OwnedFd::from)
}

fn duplicate(stream: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the stream stays open while this function runs: it belongs to pagelab or to the launch.
    unsafe { BorrowedFd::borrow_raw(stream) }.try_clone_to_owned()
}

fn access_mode(stream: RawFd) -> OFlag {
    // SAFETY: as above.
    let flags = fcntl(unsafe { BorrowedFd::borrow_raw(stream) }, FcntlArg::F_GETFL).unwrap_or(0);
    OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE
}

fn is_pipe(stream: RawFd) -> bool {
    // SAFETY: as above.
    let status = fstat(unsafe { BorrowedFd::borrow_raw(stream) });
    status.is_ok_and(|status| SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO)
}
