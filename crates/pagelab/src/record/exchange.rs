//! Files that pagelab and the recorder exchange, in a directory of their own.
//!
//! The header file exists until the recorder takes it, which is when the program, or the machine, begins. A second file is
//! removed by the recorder when it cannot write what it has recorded: on a full disk, creating a file could not signal that.
//! When a machine is recorded, the recorder creates a third file once it has recorded all it was asked to.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::files;
use tempfile::TempDir;
use trace::Header;

use super::leftovers;

/// A file system in memory, where files need no disk space.
const MEMORY: &str = "/dev/shm";

/// The directory, which is removed on drop.
pub struct Exchange(TempDir);

impl Exchange {
    /// Creates the directory with the header of the new trace.
    ///
    /// # Errors
    /// The temporary directory or the header cannot be created.
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

    /// The path of the header file.
    pub fn header(&self) -> PathBuf {
        self.0.path().join("header")
    }

    fn written(&self) -> PathBuf {
        self.0.path().join("written")
    }

    /// Whether the recorder has so far been able to write everything it recorded.
    pub fn is_written(&self) -> bool {
        self.written().exists()
    }

    /// Whether the recorder reports that it has recorded everything requested of a machine.
    pub fn is_complete(&self) -> bool {
        self.0.path().join("complete").exists()
    }

    /// Whether the recorder has taken the header: the trace has begun and replaces the previous content of the file.
    pub fn has_begun(&self) -> bool {
        !self.header().exists()
    }
}
