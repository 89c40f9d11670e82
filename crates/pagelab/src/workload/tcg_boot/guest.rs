//! The guest: a kernel and an initrd in a directory.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::error::BootError;

/// What the guest's init says before it powers off: the program that `cargo xtask tcg-guest` assembles.
pub const SAYS: &str = "pagelab guest: init reached, powering off";

/// How far the guest boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The kernel, to its first program, which powers off
    Init,
    /// Debian's installer, until udev has set up the devices: more code, and more of it run often
    Devices,
}

impl Until {
    /// As an argument has it.
    pub fn name(self) -> &'static str {
        match self {
            Until::Init => "init",
            Until::Devices => "devices",
        }
    }

    /// The file with the initial file system.
    fn initrd(self) -> &'static str {
        match self {
            Until::Init => "initrd",
            Until::Devices => "initrd-installer",
        }
    }
}

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
    pub fn find(directory: Option<&Path>, until: Until) -> Result<Guest, BootError> {
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
        Ok(Guest { kernel: file("linux")?, initrd: file(until.initrd())?, name })
    }
}

/// `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification).
fn cache() -> Result<PathBuf, BootError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))).ok_or(BootError::NoCache)
}
