//! The guest that `tcg-boot` boots ([`Guest`]): a kernel and an initramfs in a directory.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::error::BootError;

/// The line that the guest's init prints before it powers off; `cargo xtask tcg-guest` assembles that program.
pub const INIT_MESSAGE: &str = "pagelab guest: init reached, powering off";

/// How far the guest boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The kernel, to its first program, which powers off
    Init,
    /// Debian's installer, until udev has set up the devices: more code, and more of it runs often
    Devices,
    /// A whole Debian, up to its services and down again: 350 MB of code
    System,
}

impl Until {
    /// The name as an argument.
    pub fn name(self) -> &'static str {
        match self {
            Until::Init => "init",
            Until::Devices => "devices",
            Until::System => "system",
        }
    }

    /// The name of the initramfs file.
    fn initrd(self) -> &'static str {
        match self {
            Until::Init => "initrd",
            Until::Devices => "initrd-installer",
            Until::System => "initrd-system",
        }
    }

    /// The memory that the guest needs, in bytes: it holds the initramfs both compressed and unpacked.
    pub fn memory_bytes(self) -> u64 {
        match self {
            Until::Init | Until::Devices => 512 << 20,
            Until::System => 1 << 30,
        }
    }

    /// The `cargo xtask tcg-guest` command that makes the guest.
    fn made_by(self) -> &'static str {
        match self {
            Until::Init | Until::Devices => "cargo xtask tcg-guest",
            Until::System => "cargo xtask tcg-guest --system",
        }
    }
}

/// The files of a guest.
#[derive(Debug)]
pub struct Guest {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// The guest's name in reports, one word that identifies its source.
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
                Err(error) => Err(BootError::NoGuest { file, made_by: until.made_by(), error }),
            }
        };
        let named = |file: &str| {
            let name = std::fs::read_to_string(directory.join(file)).unwrap_or_else(|_| "unknown".to_string());
            results::printable(name.trim()).replace(char::is_whitespace, "_")
        };
        let name = match until {
            Until::Init | Until::Devices => named("package"),
            Until::System => format!("{}+{}", named("package"), named("system")),
        };
        Ok(Guest { kernel: file("linux")?, initrd: file(until.initrd())?, name })
    }
}

/// The user's cache directory: `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification).
fn cache() -> Result<PathBuf, BootError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))).ok_or(BootError::NoCache)
}
