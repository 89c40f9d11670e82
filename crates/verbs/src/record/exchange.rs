//! Files through which pagelab and the recorder communicate, in a private directory ([`Exchange`]).
//!
//! The recorder removes the header file when the program or the machine starts. It removes a second file if it cannot write the
//! trace; it does not create a file for that, because on a full disk it could not. When a machine is recorded, the recorder
//! creates a third file once it has recorded everything that was requested.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use results::files;
use tempfile::TempDir;
use trace::Header;

use super::leftovers;

/// A tmpfs, where files need no disk space.
const MEMORY: &str = "/dev/shm";

/// The directory, which is removed on drop.
pub struct Exchange(TempDir);

impl Exchange {
    /// Creates the directory with the header of the new trace.
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
        let exchange = leftovers::directory_in(in_memory).and_then(with_header);
        exchange.or_else(|_| leftovers::directory_in(&elsewhere).and_then(with_header))
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

    /// Whether the recorder has taken the header: the trace now replaces the previous content of the output file.
    pub fn has_begun(&self) -> bool {
        !self.header().exists()
    }
}
