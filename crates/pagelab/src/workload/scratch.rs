//! A directory of its own for the workloads that make files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tracer::signals::{self, PassOn};

use super::super::WorkloadError;
use super::refused;

/// Arguments of the workloads that make files.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub work: super::Work,
    /// Where to make a directory for the files, which is removed at the end, but where the workload is killed (SIGKILL)
    /// [default: /dev/shm, a file system in memory, so that no disk is measured; else the system's for such files]
    #[arg(long)]
    pub directory: Option<PathBuf>,
}

impl Arguments {
    /// A new directory, empty, that only its owner may enter. It is removed when it is dropped. Signals that would
    /// leave it behind are for [`go_on`] to look for from now on.
    pub fn scratch(&self) -> Result<TempDir, WorkloadError> {
        signals::catch(PassOn::Same).map_err(refused("catch signals"))?;
        let parent = self.parent();
        let made = tempfile::Builder::new().prefix("pagelab-").tempdir_in(&parent);
        made.map_err(|source| WorkloadError::Scratch { directory: parent, source })
    }

    /// Where that is made.
    pub fn parent(&self) -> PathBuf {
        let default = || match Path::new(IN_MEMORY) {
            in_memory if in_memory.is_dir() => in_memory.to_path_buf(),
            _ => std::env::temp_dir(),
        };
        self.directory.clone().unwrap_or_else(default)
    }
}

/// Where Linux has a tmpfs for everybody (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// Ends a workload that was told to stop; its directory goes with it.
pub fn go_on() -> Result<(), WorkloadError> {
    signals::arrived().map_or(Ok(()), |signal| Err(WorkloadError::Interrupted(signal)))
}

/// The name of the file number `number`.
pub fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}"))
}
