//! [`Image`]: a kernel image, whose architecture and release are found in its first bytes.
//!
//! Sources: Documentation/arch/x86/boot.rst (`HdrS`, `kernel_version`), Documentation/arch/arm64/booting.rst,
//! Documentation/arch/riscv/boot-image-header.rst, and PE/COFF for the machine of an EFI program.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::file;

/// An architecture for which kernels can be booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Arm64,
    /// 64-bit RISC-V.
    Riscv64,
}

/// A kernel image that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// The architecture that the kernel is for.
    pub architecture: Architecture,
    /// The kernel release, such as `6.1.0-56-amd64`.
    pub release: String,
}

/// Why a file cannot be booted as a kernel.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The first bytes are not those of a kernel image.
    #[error(
        "{}: expected the image of a kernel (vmlinuz, bzImage, Image), found {found}; name the file that a boot loader loads",
        path.display()
    )]
    NoKernel {
        /// Path of the file.
        path: PathBuf,
        /// What the file is instead.
        found: &'static str,
    },
    #[error("{}: expected the image of a kernel, found one that says no release", path.display())]
    NoRelease {
        /// Path of the file.
        path: PathBuf,
    },
}

impl Architecture {
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Arm64, Architecture::Riscv64];

    /// The architecture that this program runs on; `None` if no kernels can be booted for it.
    pub fn own() -> Option<Architecture> {
        Architecture::ALL.into_iter().find(|one| one.name() == std::env::consts::ARCH)
    }

    /// The e_machine field of this architecture's ELF files (EM_X86_64, EM_AARCH64, EM_RISCV of <elf.h>).
    pub(crate) fn elf_machine(self) -> u16 {
        match self {
            Architecture::X86_64 => 62,
            Architecture::Arm64 => 183,
            Architecture::Riscv64 => 243,
        }
    }

    /// Its name as `uname -m` prints it, except `riscv64`, which is Rust's name.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Arm64 => "aarch64",
            Architecture::Riscv64 => "riscv64",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Image {
    /// Reads a kernel image.
    pub fn read(path: &Path) -> Result<Image, ImageError> {
        let unreadable = |error| ImageError::Unreadable { path: path.to_owned(), error };
        let whole = fs::canonicalize(path).map_err(unreadable)?;
        let bytes = file::read(&whole).map_err(unreadable)?;
        let no_kernel = |found| ImageError::NoKernel { path: path.to_owned(), found };
        let architecture = architecture(&bytes).map_err(no_kernel)?;
        let release = release(&bytes, architecture).ok_or_else(|| ImageError::NoRelease { path: path.to_owned() })?;
        Ok(Image { path: whole, architecture, release })
    }
}

/// The architecture of an image; on failure, what the file is instead.
fn architecture(bytes: &[u8]) -> Result<Architecture, &'static str> {
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..offset + magic.len()) == Some(magic);
    if at(0x202, b"HdrS") {
        Ok(Architecture::X86_64)
    } else if at(4, b"zimg") {
        Err("a compressed image of EFI, which QEMU's loader does not take (Image is the other)")
    } else if at(0x38, b"ARM\x64") {
        Ok(Architecture::Arm64)
    } else if at(0x38, b"RSC\x05") {
        Ok(Architecture::Riscv64)
    } else if at(0, b"\x7fELF") {
        Err("an ELF file (vmlinux), which no boot loader loads")
    } else if at(0, &[0x1f, 0x8b]) {
        Err("a file compressed by gzip; unpack it")
    } else if at(0, b"!<arch>\n") {
        Err("a package; unpack it (dpkg-deb -x) and name boot/vmlinuz-* of it")
    } else if bytes.is_empty() {
        Err("an empty file")
    } else {
        Err("another file")
    }
}

/// The release. On x86 it is in the setup header, on the others in the banner that the kernel prints at boot.
fn release(bytes: &[u8], architecture: Architecture) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let word = |text: &[u8]| {
        let end = text.iter().position(|byte| !byte.is_ascii_graphic())?;
        let word = String::from_utf8_lossy(&text[..end]).into_owned();
        word.starts_with(|first: char| first.is_ascii_digit()).then_some(word)
    };
    match architecture {
        Architecture::X86_64 => {
            let offset = bytes.get(0x20e..0x210)?;
            word(bytes.get(usize::from(u16::from_le_bytes([offset[0], offset[1]])) + 0x200..)?)
        }
        Architecture::Arm64 | Architecture::Riscv64 => {
            let mut places = bytes.windows(BANNER.len()).enumerate().filter(|(_, window)| *window == BANNER);
            places.find_map(|(at, _)| word(&bytes[at + BANNER.len()..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Result<Image, ImageError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, bytes).unwrap();
        Image::read(&path)
    }

    #[test]
    fn an_image_says_what_it_is_for_and_its_release() {
        let mut x86 = vec![0; 0x1000];
        x86[0x202..0x206].copy_from_slice(b"HdrS");
        x86[0x20e..0x210].copy_from_slice(&0x600u16.to_le_bytes());
        x86[0x800..0x810].copy_from_slice(b"6.1.0-56-amd64 (");
        let image = of(&x86).unwrap();
        assert_eq!((image.architecture, image.release.as_str()), (Architecture::X86_64, "6.1.0-56-amd64"));
        let mut arm = vec![0; 0x1000];
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        arm[0x100..0x110].copy_from_slice(b"Linux version %s");
        arm[0x200..0x219].copy_from_slice(b"Linux version 6.12.1-64k ");
        let image = of(&arm).unwrap();
        assert_eq!((image.architecture, image.release.as_str()), (Architecture::Arm64, "6.12.1-64k"));
    }

    #[test]
    fn names_the_kind_of_file_that_is_no_kernel_image() {
        for (bytes, expected) in [
            (&b"\x7fELF..."[..], "vmlinux"),
            (b"!<arch>\ndebian", "dpkg-deb -x"),
            (b"", "an empty file"),
            (b"MZ..zimg", "a compressed image of EFI"),
            (b"hello", "another file"),
        ] {
            let error = of(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut arm = vec![0; 0x1000];
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert!(of(&arm).unwrap_err().to_string().contains("says no release"));
        assert!(Image::read(Path::new("/nowhere/vmlinuz")).unwrap_err().to_string().contains("No such file"));
    }
}
