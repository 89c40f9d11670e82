//! What the measured program prints: counted, hashed and kept as far as asked for.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

/// Bytes of a program's output that are kept for `--metric`, from its start.
pub const KEPT_BYTES: usize = 16 << 20;
/// Bytes of a program's error output that are kept for a message, from its end.
const TAIL_BYTES: usize = 2048;

/// A pipe that is read by a thread of its own, so that the program never waits for pagelab.
pub struct Capture {
    reader: JoinHandle<Captured>,
}

/// What came through the pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// SHA-256 of everything, in hexadecimal.
    pub sha256: String,
    /// The first [`KEPT_BYTES`].
    pub start: Vec<u8>,
    /// Whether there was more.
    pub cut: bool,
    /// The last bytes, for a message.
    pub tail: Vec<u8>,
}

impl Capture {
    /// A pipe and its reader. The program gets the returned end; pagelab must not keep it open.
    pub fn start() -> io::Result<(OwnedFd, Capture)> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let reader = std::thread::Builder::new().name("output".into()).spawn(move || drain(File::from(read)))?;
        Ok((write, Capture { reader }))
    }

    /// Waits for the end of the output.
    pub fn finish(self) -> Captured {
        self.reader.join().expect("the reader of a pipe does not panic")
    }
}

impl Captured {
    /// The last lines as text, for a message.
    pub fn tail_text(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_string()
    }
}

fn drain(mut pipe: File) -> Captured {
    let mut hash = Sha256::new();
    let (mut start, mut tail, mut cut) = (Vec::new(), Vec::new(), false);
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let part = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        hash.update(part);
        let kept = part.len().min(KEPT_BYTES - start.len());
        start.extend_from_slice(&part[..kept]);
        cut |= kept < part.len();
        tail.extend_from_slice(part);
        tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Captured { sha256, start, cut, tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn output_is_hashed_whole_and_kept_in_part() {
        let (write, capture) = Capture::start().unwrap();
        let mut write = File::from(write);
        write.write_all(b"abc").unwrap();
        drop(write);
        let captured = capture.finish();
        assert_eq!(captured.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((captured.start.as_slice(), captured.cut), (b"abc".as_slice(), false));
        assert_eq!(captured.tail_text(), "abc");
    }
}
