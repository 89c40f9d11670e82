//! The guest: a kernel and an initrd in a directory.

use std::path::{Path, PathBuf};

use super::error::BootError;

/// What the guest's init says before it powers off: the program that `cargo xtask tcg-guest` assembles.
pub const SAYS: &str = "pagelab guest: init reached, powering off";

/// The files.
#[derive(Debug)]
pub struct Guest {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The initial file system.
    pub initrd: PathBuf,
    /// Where it comes from, as one word.
    pub name: String,
}

impl Guest {
    /// Finds the files in a directory, or in the cache.
    pub fn find(directory: Option<&Path>) -> Result<Guest, BootError> {
        let directory = match directory {
            Some(directory) => directory.to_path_buf(),
            None => cache()?.join("pagelab/tcg-guest"),
        };
        let file = |name: &str| {
            let file = directory.join(name);
            match std::fs::File::open(&file) {
                Ok(_) => Ok(file),
                Err(error) => Err(BootError::NoGuest { file, error }),
            }
        };
        let name = std::fs::read_to_string(directory.join("package")).unwrap_or_else(|_| "unknown".to_string());
        let name = results::printable(name.trim()).replace(char::is_whitespace, "_");
        Ok(Guest { kernel: file("linux")?, initrd: file("initrd")?, name })
    }
}

/// `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification).
fn cache() -> Result<PathBuf, BootError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))).ok_or(BootError::NoCache)
}
