//! [`Capture`]: the measured program's output, hashed, and kept as far as requested.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

/// The number of bytes of a program's output that are kept for `--metric`, from its start.
pub const KEPT_BYTES: usize = 16 << 20;
/// The number of bytes of a program's standard error that are kept for a message, from its end.
const TAIL_BYTES: usize = 2048;

/// A pipe that is read by a thread of its own, so that the program never waits for pagelab.
pub struct Capture {
    reader: JoinHandle<Captured>,
    /// Closing it tells the reader that the program has ended.
    running: OwnedFd,
}

/// The data from the pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// SHA-256 of all data, in hexadecimal.
    pub sha256: String,
    /// The first [`KEPT_BYTES`] bytes.
    pub start: Vec<u8>,
    /// Whether there was more data.
    pub is_truncated: bool,
    /// The last bytes, for a message.
    pub tail: Vec<u8>,
}

impl Capture {
    /// A pipe and its reader. The returned end is for the program; pagelab must not keep it open.
    pub fn start() -> io::Result<(OwnedFd, Capture)> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (over, running) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let drain = move || drain(File::from(read), &over);
        let reader = std::thread::Builder::new().name("output".into()).spawn(drain)?;
        Ok((write, Capture { reader, running }))
    }

    /// The output of the program, which has ended: the data in the pipe now is the end of the output, even where another process
    /// still has it open.
    pub fn finish(self) -> Captured {
        drop(self.running);
        self.reader.join().expect("the reader of a pipe does not panic")
    }
}

impl Captured {
    /// The last lines as text, for a message.
    pub fn tail_text(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_string()
    }
}

fn drain(mut pipe: File, over: &OwnedFd) -> Captured {
    let mut hash = Sha256::new();
    let (mut start, mut tail, mut is_truncated) = (Vec::new(), Vec::new(), false);
    let mut buffer = vec![0u8; 64 << 10];
    let mut left = None;
    loop {
        if left.is_none() && wait(&pipe, over) == Awaited::End {
            left = Some(waiting_bytes(&pipe));
        }
        let most = left.map_or(buffer.len(), |left: usize| left.min(buffer.len()));
        let part = match pipe.read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Reading a pipe has no other errors (pipe(7)).
            Err(_) => break,
        };
        left = left.map(|left| left - part.len());
        hash.update(part);
        let kept = part.len().min(KEPT_BYTES - start.len());
        start.extend_from_slice(&part[..kept]);
        is_truncated |= kept < part.len();
        tail.extend_from_slice(part);
        tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
    }
    Captured { sha256: hexadecimal(&hash.finalize()), start, is_truncated, tail }
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a wait returned.
#[derive(PartialEq, Eq)]
enum Awaited {
    /// More output, or its end.
    Output,
    /// The end of the program.
    End,
}

fn wait(pipe: &File, over: &OwnedFd) -> Awaited {
    let entry = |descriptor| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut ends = [entry(over.as_raw_fd()), entry(pipe.as_raw_fd())];
    // SAFETY: two valid structures, as the count says.
    while unsafe { libc::poll(ends.as_mut_ptr(), 2, -1) } < 1 {}
    if ends[0].revents == 0 { Awaited::Output } else { Awaited::End }
}

/// Number of bytes in a pipe; every pipe supports this query.
fn waiting_bytes(pipe: &File) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the integer is valid; the kernel writes one.
    let result = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn finishing_does_not_wait_for_an_open_writer() {
        let (write, capture) = Capture::start().unwrap();
        let mut write = File::from(write);
        let text = vec![b'x'; 50_000];
        write.write_all(&text).unwrap();
        let captured = capture.finish();
        assert_eq!((captured.start, captured.is_truncated), (text, false), "all that was there, though it has no end");
        let (write, capture) = Capture::start().unwrap();
        assert_eq!((capture.finish().start.len(), drop(write)), (0, ()));
    }

    #[test]
    fn output_is_hashed_whole_and_kept_in_part() {
        let (write, capture) = Capture::start().unwrap();
        let mut write = File::from(write);
        write.write_all(b"abc").unwrap();
        drop(write);
        let captured = capture.finish();
        assert_eq!(captured.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((captured.start.as_slice(), captured.is_truncated), (b"abc".as_slice(), false));
        assert_eq!(captured.tail_text(), "abc");
    }
}
