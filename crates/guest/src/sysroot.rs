//! A sysroot: a directory that holds a root file system for the architecture of the guest's kernel, with pagelab in it. The guest
//! sees the sysroot's files instead of the host's. Booting a guest writes nothing into the sysroot.

use std::fs;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::file;
use crate::image::Architecture;

/// The path of pagelab in a sysroot.
pub const PROGRAM: &str = "usr/bin/pagelab";

/// A sysroot that a guest can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysroot {
    /// The absolute path of the directory.
    pub path: PathBuf,
}

/// Why a guest cannot use a directory as a sysroot.
#[derive(Debug, thiserror::Error)]
pub enum SysrootError {
    /// The directory, or pagelab in it, cannot be read.
    #[error(
        "{}: {error}; expected the root of a system for {architecture} with pagelab in {PROGRAM} (cargo xtask dist makes a static one)",
        path.display()
    )]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The architecture of the kernel.
        architecture: Architecture,
        /// The error of the operating system.
        error: std::io::Error,
    },
    #[error("{}: expected a program for {expected}, found one for {found}", path.display())]
    OtherArchitecture {
        /// Path of the file.
        path: PathBuf,
        /// The architecture of the kernel.
        expected: Architecture,
        /// The architecture of the program.
        found: String,
    },
    /// The sysroot's pagelab is dynamically linked. With a sysroot, the initramfs has no shared libraries.
    #[error("{}: expected a static program, found one that is loaded by {loader}; cargo xtask dist makes a static one", path.display())]
    NotStatic {
        /// Path of the file.
        path: PathBuf,
        /// The loader that the program names.
        loader: String,
    },
}

impl Sysroot {
    /// Opens the sysroot in a directory, for a kernel of this architecture.
    pub fn open(path: &Path, architecture: Architecture) -> Result<Sysroot, SysrootError> {
        let unreadable = |path: &Path, error| SysrootError::Unreadable { path: path.to_owned(), architecture, error };
        let path = fs::canonicalize(path).map_err(|error| unreadable(path, error))?;
        let file = path.join(PROGRAM);
        let program = file::read(&file).map_err(|error| unreadable(&file, error))?;
        match elf::machine(&program) {
            Some(machine) if machine == architecture.elf_machine() => {}
            found => {
                let found = found.map_or("no processor at all (it is no ELF file)".to_owned(), |machine| {
                    let known = Architecture::ALL.into_iter().find(|one| one.elf_machine() == machine);
                    known.map_or(format!("ELF machine {machine}"), |one| one.to_string())
                });
                return Err(SysrootError::OtherArchitecture { path: file, expected: architecture, found });
            }
        }
        match elf::loader(&program) {
            Some(loader) => Err(SysrootError::NotStatic { path: file, loader }),
            None => Ok(Sysroot { path }),
        }
    }

    /// The path of pagelab inside the guest.
    pub fn program(&self) -> PathBuf {
        Path::new("/").join(PROGRAM)
    }

    /// The path of pagelab on this host.
    pub fn file(&self) -> PathBuf {
        self.path.join(PROGRAM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a static ELF file for a machine.
    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    fn opened(program: Option<&[u8]>) -> Result<Sysroot, String> {
        let directory = tempfile::tempdir().unwrap();
        if let Some(program) = program {
            fs::create_dir_all(directory.path().join("usr/bin")).unwrap();
            fs::write(directory.path().join(PROGRAM), program).unwrap();
        }
        Sysroot::open(directory.path(), Architecture::Arm64).map_err(|error| error.to_string())
    }

    #[test]
    fn a_system_has_a_static_pagelab_for_the_kernel() {
        assert_eq!(opened(Some(&elf(183))).unwrap().program(), Path::new("/usr/bin/pagelab"));
        assert!(opened(None).unwrap_err().contains("cargo xtask dist"));
        assert!(opened(Some(&elf(62))).unwrap_err().contains("expected a program for aarch64, found one for x86_64"));
        assert!(opened(Some(&elf(8))).unwrap_err().contains("ELF machine 8"));
        assert!(opened(Some(b"#!/bin/sh")).unwrap_err().contains("no ELF file"));
        let mut loaded = elf(183);
        loaded.resize(256, 0);
        let header = [(32, 64u64, 8), (54, 56, 2), (56, 1, 2), (64, 3, 4), (72, 200, 8), (96, 12, 8)];
        for (at, value, bytes) in header {
            loaded[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        loaded[200..212].copy_from_slice(b"/lib/ld.so.1");
        assert!(opened(Some(&loaded)).unwrap_err().contains("loaded by /lib/ld.so.1"));
        assert!(
            Sysroot::open(Path::new("/nowhere"), Architecture::Arm64).unwrap_err().to_string().contains("/nowhere")
        );
    }
}
