//! Reads keys from standard input, which is a terminal in raw mode, until the terminal is closed ([`Keyboard`]).
//!
//! crossterm is not used for this. At end of file and on EIO its event loop (0.29) reads in an endless loop, and in the
//! middle of an escape sequence it blocks in read(2), so that a signal is not noticed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;

use super::browse::Key;
use super::keys::{Parsed, parse_first};

/// The size of a read, in bytes.
const CHUNK_BYTES: usize = 256;

/// The result of waiting for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key was pressed.
    Key(Key),
    /// The time elapsed without a key, or a signal arrived.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// A keyboard, with keys that have been read but not returned.
#[derive(Default)]
pub struct Keyboard {
    keys: VecDeque<Key>,
    /// The bytes of an incomplete key.
    incomplete: Vec<u8>,
}

impl Keyboard {
    /// Waits for the next key, at most `timeout`.
    ///
    /// # Errors
    /// Errors of poll(2) and read(2), except EIO, which means that the terminal is closed.
    pub fn next(&mut self, input: impl AsFd, timeout: Duration) -> io::Result<Input> {
        if let Some(key) = self.keys.pop_front() {
            return Ok(Input::Key(key));
        }
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let mut poll_fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut poll_fds, timeout) {
            Ok(0) => {
                // A terminal sends an escape sequence in one piece, so the rest of this one will not arrive.
                self.incomplete.clear();
                return Ok(Input::Nothing);
            }
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Input::Nothing),
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; CHUNK_BYTES];
        match read(input.as_fd(), &mut bytes) {
            Ok(0) | Err(Errno::EIO) => Ok(Input::Closed),
            Ok(count) => {
                self.take(&bytes[..count]);
                Ok(self.keys.pop_front().map_or(Input::Nothing, Input::Key))
            }
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(Input::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Splits bytes that have been read into keys.
    fn take(&mut self, bytes: &[u8]) {
        self.incomplete.extend_from_slice(bytes);
        while !self.incomplete.is_empty() {
            let Parsed::Key(key, length) = parse_first(&self.incomplete) else { return };
            self.keys.extend(key);
            self.incomplete.drain(..length);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nix::pty::openpty;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_key_that_arrives_in_two_parts_is_one_key() {
        let (from, mut to) = io::pipe().unwrap();
        let mut keyboard = Keyboard::default();
        assert_eq!(keyboard.next(&from, Duration::ZERO).unwrap(), Input::Nothing);
        to.write_all(b"a\x1b[").unwrap();
        assert_eq!(keyboard.next(&from, SOON).unwrap(), Input::Key(Key::Char('a')));
        to.write_all(b"Ab").unwrap();
        assert_eq!(keyboard.next(&from, SOON).unwrap(), Input::Key(Key::Up));
        assert_eq!(keyboard.next(&from, SOON).unwrap(), Input::Key(Key::Char('b')));
    }

    #[test]
    fn a_terminal_whose_other_end_is_closed_is_closed() {
        let pair = openpty(None, None).unwrap();
        drop(pair.master);
        let mut keyboard = Keyboard::default();
        for _ in 0..2 {
            assert_eq!(keyboard.next(&pair.slave, SOON).unwrap(), Input::Closed);
        }
    }

    #[test]
    fn end_of_file_ends_the_keys() {
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"q").unwrap();
        drop(to);
        let mut keyboard = Keyboard::default();
        assert_eq!(keyboard.next(&from, SOON).unwrap(), Input::Key(Key::Char('q')));
        assert_eq!(keyboard.next(&from, SOON).unwrap(), Input::Closed);
    }
}
