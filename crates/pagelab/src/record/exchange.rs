//! What pagelab and the recorder hand each other: files in a directory of their own.
//!
//! The header lies there until the recorder takes it, which is when the program, or the machine, begins. Beside it lies, of
//! a machine where all is recorded that was to be, a file that says so.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;
use trace::Header;

/// Memory as a file system, where files cost no disk.
const MEMORY: &str = "/dev/shm";

/// The directory, which is removed at the end.
pub struct Exchange(TempDir);

impl Exchange {
    /// Makes it, with the header of the trace to be.
    ///
    /// # Errors
    /// Those of the directory for temporary files.
    pub fn open(header: &Header) -> io::Result<Exchange> {
        let json = serde_json::to_vec(header)?;
        let directories = super::directories();
        let with_header = |directory: TempDir| {
            let exchange = Exchange(directory);
            std::fs::write(exchange.header(), &json).map(|()| exchange)
        };
        let in_memory = directories.tempdir_in(MEMORY).and_then(with_header);
        in_memory.or_else(|_| directories.tempdir().and_then(with_header))
    }

    /// The file of the header.
    pub fn header(&self) -> PathBuf {
        self.0.path().join("header")
    }

    /// Whether the recorder says that it has all that it was to record of a machine.
    pub fn is_complete(&self) -> bool {
        self.0.path().join("complete").exists()
    }

    /// Whether the recorder has taken the header: the trace has begun, and is no more what was there before.
    pub fn has_begun(&self) -> bool {
        !self.header().exists()
    }
}
