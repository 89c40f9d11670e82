//! [`HeldMemory`]: memory that is held so that the kernel allocates from other frames. It consists of pages inside pipes.
//!
//! Secret pages are unmovable, and the allocator takes them out of blocks of unmovable memory, one after the other
//! (mm/page_alloc.c, `__rmqueue`). Pages of pipes are unmovable as well (GFP_HIGHUSER without __GFP_MOVABLE, fs/pipe.c), so they
//! come out of the same blocks: the memory held between two secret pages decides how far apart they are. Pipes cost nothing to
//! hold, need no mount, and end with the process.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{pipe2, read, write};

/// Capacity of one pipe in bytes, if the kernel allows it: larger ones need large contiguous tables of their own.
const PIPE_BYTES: i32 = 16 << 20;
/// Minimum capacity of a pipe in bytes.
const MIN_PIPE_BYTES: i32 = 64 << 10;
/// Bytes of one write.
const STEP_BYTES: usize = 4 << 20;

/// Held memory, given back when dropped.
pub struct HeldMemory {
    pipes: Vec<(OwnedFd, OwnedFd)>,
    content: Vec<u8>,
    bytes: u64,
}

impl HeldMemory {
    /// Holds nothing yet. Raises the limit of open files, because many pipes are needed.
    pub fn new() -> HeldMemory {
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        HeldMemory { pipes: Vec::new(), content: vec![0; STEP_BYTES], bytes: 0 }
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds one more step, of at most `most` bytes (at least one base page); returns the number of bytes.
    pub fn grow(&mut self, most: u64) -> io::Result<u64> {
        let bytes = STEP_BYTES.min(usize::try_from(most).unwrap_or(STEP_BYTES)).max(1);
        loop {
            let written = match self.pipes.last() {
                Some((_, into)) => write(into, &self.content[..bytes]),
                None => Err(nix::Error::EAGAIN),
            };
            match written {
                Ok(written) => {
                    self.bytes += written as u64;
                    return Ok(written as u64);
                }
                Err(nix::Error::EAGAIN) => self.pipes.push(pipe()?),
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Releases the memory held last, at least one step of it; returns the number of bytes, 0 where nothing is held.
    pub fn shrink(&mut self) -> u64 {
        let before = self.bytes;
        while let Some((from, _)) = self.pipes.last()
            && before - self.bytes < STEP_BYTES as u64
        {
            match read(from, &mut self.content) {
                // Only zeros were written, so the content is still correct.
                Ok(bytes) if bytes > 0 => self.bytes -= bytes as u64,
                Err(nix::Error::EINTR) => {}
                _ => drop(self.pipes.pop()),
            }
        }
        before - self.bytes
    }
}

/// An empty pipe with the largest capacity available.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (from, into) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
    let mut bytes = PIPE_BYTES;
    while bytes > MIN_PIPE_BYTES && fcntl(&into, FcntlArg::F_SETPIPE_SZ(bytes)).is_err() {
        bytes /= 2;
    }
    Ok((from, into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plug_holds_what_it_says() {
        let mut held_memory = HeldMemory::new();
        let mut held = 0;
        while held < 20 << 20 {
            let grown = held_memory.grow(64 << 10).unwrap();
            assert!(grown > 0 && grown <= 64 << 10);
            held += grown;
        }
        assert_eq!(held_memory.bytes(), held);
        assert!(held_memory.pipes.len() >= 2, "one pipe is full");
        while held_memory.bytes() > 0 {
            let shrunk = held_memory.shrink();
            assert!(shrunk > 0 && shrunk < 2 * STEP_BYTES as u64);
            held -= shrunk;
            assert_eq!(held_memory.bytes(), held);
        }
        assert_eq!(held_memory.shrink(), 0);
        assert_eq!(held_memory.grow(4096).unwrap(), 4096, "it can be used again");
    }
}
