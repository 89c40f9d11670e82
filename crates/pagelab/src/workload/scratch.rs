//! A private directory for workloads that create files.

use std::path::{Path, PathBuf};

use tracer::signals::{self, PassOn};
use workloads::kernel::KernelError;

use super::WorkloadError;

/// The tmpfs that all users can write to (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// What such a workload is asked about it.
#[derive(Clone, Debug, clap::Args)]
pub struct Scratch {
    /// Where to make a directory for the files; it is removed at the end, unless the workload is killed (SIGKILL)
    /// [default: /dev/shm, a file system in memory, so that no disk is measured; else the system's for such files]
    #[arg(long)]
    directory: Option<PathBuf>,
}

impl Scratch {
    /// Runs a workload in a new, empty directory that only its owner may enter, and removes the directory afterwards. The
    /// workload must check for signals itself ([`signals::arrived`]), so that none leaves the directory behind.
    pub fn with<T>(&self, run: impl FnOnce(&Path) -> Result<T, KernelError>) -> Result<T, WorkloadError> {
        let refused = |source| KernelError::Refused { call: "catch signals", source };
        signals::catch(PassOn::Same).map_err(refused)?;
        let parent = self.parent();
        let made = results::files::temporary_directory(&parent, "pagelab-");
        let made = made.map_err(|source| WorkloadError::Scratch { directory: parent, source })?;
        let ran = run(made.path());
        drop(made);
        signals::release();
        Ok(ran?)
    }

    /// The parent directory, as text.
    pub fn shown(&self) -> String {
        self.parent().display().to_string()
    }

    fn parent(&self) -> PathBuf {
        let default = || match Path::new(IN_MEMORY) {
            in_memory if in_memory.is_dir() => in_memory.to_path_buf(),
            _ => std::env::temp_dir(),
        };
        self.directory.clone().unwrap_or_else(default)
    }
}
