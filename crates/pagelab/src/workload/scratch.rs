//! A directory of its own for the workloads that make files.

use std::path::{Path, PathBuf};

use tracer::signals::{self, PassOn};
use workloads::kernel::KernelError;

use super::WorkloadError;

/// Where Linux has a tmpfs for everybody (shm_overview(7)).
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
    /// Runs a workload in a new directory, empty, that only its owner may enter, and removes that. Signals that would
    /// leave it behind are for the workload to ask for ([`signals::arrived`]).
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

    /// Where that is made, as text.
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
