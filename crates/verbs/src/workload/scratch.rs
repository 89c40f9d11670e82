//! `--directory`: a private directory for workloads that create files ([`Scratch`]).

use std::path::{Path, PathBuf};

use tracer::signals::{self, Forward};
use workloads::kernel::KernelError;

use super::WorkloadError;

/// The tmpfs that all users can write to (shm_overview(7)).
const IN_MEMORY: &str = "/dev/shm";

/// Arguments of workloads that create files.
#[derive(Clone, Debug, clap::Args)]
pub struct Scratch {
    /// Where to create a directory for the files; it is removed at the end, unless the workload is killed (SIGKILL)
    /// [default: /dev/shm, a tmpfs, so that no disk is measured; otherwise the directory of temporary files]
    #[arg(long)]
    directory: Option<PathBuf>,
}

impl Scratch {
    /// Runs a workload in a new, empty directory that only its owner may enter, and removes the directory afterwards. The
    /// workload must check for signals itself ([`signals::arrived`]); otherwise a signal would leave the directory
    /// behind.
    pub fn with<T>(&self, run: impl FnOnce(&Path) -> Result<T, KernelError>) -> Result<T, WorkloadError> {
        let refused = |source| KernelError::Refused { call: "catch signals", source };
        signals::catch(Forward::Same).map_err(refused)?;
        let parent = self.parent();
        let directory = results::files::temporary_directory(&parent, "pagelab-");
        let directory = directory.map_err(|source| WorkloadError::Scratch { directory: parent, source })?;
        let result = run(directory.path());
        drop(directory);
        signals::restore_defaults();
        Ok(result?)
    }

    /// The parent directory, as text.
    pub fn parent_text(&self) -> String {
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
