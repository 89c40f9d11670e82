//! [`Vma`]: a mapping, and the kind of memory that it can hold.

use policy::census::VmaKind;

/// One mapping of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// PROT_READ, PROT_WRITE and PROT_EXEC, as for mmap; 0 (PROT_NONE) means no access.
    pub protection: u64,
    /// Whether stores go to the mapped object (`s`) and not to a private copy (`p`).
    pub shared: bool,
    /// Major and minor number of the file system that contains the file; 0:0 without a file.
    pub device: (u32, u32),
    /// The file's inode number; 0 without a file.
    pub inode: u64,
    /// Offset in the file in bytes; 0 without a file.
    pub offset: u64,
    /// The path, or the kernel's name in brackets; empty where there is none.
    pub name: String,
}

impl Vma {
    /// Length of the address range in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it has PROT_WRITE.
    pub fn is_writable(&self) -> bool {
        self.protection & libc::PROT_WRITE as u64 != 0
    }

    /// Whether it has PROT_EXEC.
    pub fn is_executable(&self) -> bool {
        self.protection & libc::PROT_EXEC as u64 != 0
    }

    /// The kind of memory that the mapping can hold. For the kernel a private mapping of `/dev/zero` is anonymous memory
    /// (`mmap_zero` in drivers/char/mem.c), whatever its name.
    pub fn kind(&self) -> VmaKind {
        if self.name.starts_with("/dev/dax") {
            VmaKind::Special
        } else if self.inode != 0 && self.shared {
            VmaKind::Shared
        } else if self.inode != 0 && self.name != "/dev/zero" {
            VmaKind::PrivateFile
        } else if self.name.starts_with("[stack") {
            VmaKind::Stack
        } else if self.name.starts_with('[') && self.name != "[heap]" && !self.name.starts_with("[anon") {
            VmaKind::Special
        } else {
            VmaKind::Anonymous
        }
    }
}
