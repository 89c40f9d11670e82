//! [`Message`]s between pagelab and the monitor, the parent of a command on a terminal of its own ([`super::monitor`]). Each is sent whole
//! over a pair of sockets ([`Channel`]).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The modes of a terminal as pagelab found them, and as pagelab set them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Modes {
    /// Modes to restore.
    pub before: libc::termios,
    /// Modes while keys are passed on unchanged.
    pub raw: libc::termios,
}

/// A message between pagelab and the monitor.
#[derive(Clone, Copy)]
#[repr(C)]
pub enum Message {
    /// From the monitor: PID of the command.
    Started(libc::pid_t),
    /// From the monitor: the command was stopped by this signal.
    Stopped(libc::c_int),
    /// From the monitor: the command has ended.
    Ended,
    /// From pagelab: resume the command (SIGCONT).
    Continue {
        /// Whether to make it the terminal's foreground group first.
        in_foreground: bool,
    },
    /// From pagelab: the command is to stop, as if Ctrl-Z had been typed.
    Stop,
    /// From pagelab: if pagelab dies while `raw` is in force, restore `before`. Sent before the change, and again with the modes that the
    /// terminal accepted.
    Raw(Modes),
    /// From pagelab: the monitor has no modes to restore any more.
    NothingToRestore,
}

/// One end of the socket pair.
pub struct Channel(OwnedFd);

impl Channel {
    /// Creates both ends.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        use std::os::fd::FromRawFd;
        let mut ends = [-1; 2];
        // SAFETY: the array is live, and holds two new descriptors if the call succeeds.
        unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok((Channel(OwnedFd::from_raw_fd(ends[0])), Channel(OwnedFd::from_raw_fd(ends[1]))))
        }
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends a message; has no effect if the other end is closed.
    pub fn send(&self, message: Message) {
        // SAFETY: the descriptor is this end's own.
        unsafe { send(self.descriptor(), message) }
    }

    /// The next message; `None` if the other end is closed or receiving fails.
    pub fn receive(&self) -> Option<Message> {
        // SAFETY: the descriptor is this end's own.
        unsafe { receive(self.descriptor()) }
    }

    /// Receives the first message of a monitor: the command's PID. An error means that the monitor has ended.
    pub fn receive_start(&self) -> io::Result<libc::pid_t> {
        match self.receive() {
            Some(Message::Started(command)) => Ok(command),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }
}

/// Sends a message. Async-signal-safe, for the monitor, which runs after a fork without exec.
///
/// # Safety
/// The descriptor is an end of a [`Channel`].
pub unsafe fn send(channel: RawFd, message: Message) {
    // SAFETY: the message is live. If the other end is closed, MSG_NOSIGNAL gives EPIPE instead of SIGPIPE.
    unsafe { libc::send(channel, (&raw const message).cast(), size_of::<Message>(), libc::MSG_NOSIGNAL) };
}

/// Receives a message; `None` if the other end is closed or receiving fails. Async-signal-safe, as [`send`].
///
/// # Safety
/// The descriptor is an end of a [`Channel`].
pub unsafe fn receive(channel: RawFd) -> Option<Message> {
    let mut message = std::mem::MaybeUninit::<Message>::uninit();
    loop {
        // SAFETY: the buffer has room for a whole message, and each packet is one, because only `send` writes to a channel.
        unsafe {
            let count = libc::recv(channel, message.as_mut_ptr().cast(), size_of::<Message>(), 0);
            if count == size_of::<Message>() as isize {
                return Some(message.assume_init());
            }
            // Only an interrupted call is repeated.
            if count != -1 || *libc::__errno_location() != libc::EINTR {
                return None;
            }
        }
    }
}
