//! What pagelab and the recorder hand each other: files in a directory of their own.
//!
//! The header lies there until the recorder takes it, which is when the program, or the machine, begins. Beside it lies a file
//! that the recorder removes when it cannot write what it has recorded (on a full disk nothing could be said by making one),
//! and, of a machine where all is recorded that was to be, a file that says so.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::files;
use tempfile::TempDir;
use trace::Header;

use super::leftovers;

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
        let (in_memory, elsewhere) = (Path::new(MEMORY), std::env::temp_dir());
        [in_memory, &elsewhere].into_iter().for_each(leftovers::remove_in);
        let with_header = |directory: TempDir| {
            let exchange = Exchange(directory);
            files::create_new(&exchange.written())?;
            files::create_new(&exchange.header())?.write_all(&json)?;
            Ok(exchange)
        };
        let made = leftovers::directory_in(in_memory).and_then(with_header);
        made.or_else(|_| leftovers::directory_in(&elsewhere).and_then(with_header))
    }

    /// The file of the header.
    pub fn header(&self) -> PathBuf {
        self.0.path().join("header")
    }

    fn written(&self) -> PathBuf {
        self.0.path().join("written")
    }

    /// Whether the recorder could write all that it has recorded so far.
    pub fn is_written(&self) -> bool {
        self.written().exists()
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
