//! Which memory a witness looks at before a call gives it back. Every look takes time, so it looks at large ranges only, unless all
//! is to be seen.

use crate::call::madv;

/// Bytes of an unmapped range from which on a witness looks at it before it goes.
pub const LARGE_BYTES: u64 = 1 << 20;

/// Bytes of a range whose content is dropped (MADV_DONTNEED) from which on a witness looks at it. It is more
/// than a thread's stack, whose content glibc drops when the thread ends.
pub const LARGE_DROP_BYTES: u64 = 16 << 20;

/// How much of the memory that goes is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Large ranges that munmap and MADV_DONTNEED give back.
    Large,
    /// All of it: every munmap, MADV_DONTNEED and MADV_FREE, what mremap and brk cut off, what a mapping takes the place of, and
    /// the memory of an image that execve replaces.
    All,
}

impl Extent {
    /// Whether what munmap gives back is looked at.
    pub fn has_unmap(self, bytes: u64) -> bool {
        self == Extent::All || bytes >= LARGE_BYTES
    }

    /// Whether what this advice drops is looked at.
    pub fn has_drop(self, bytes: u64, advice: u64) -> bool {
        self == Extent::All || advice == madv::DONTNEED && bytes >= LARGE_DROP_BYTES
    }

    /// Whether what goes by other calls is looked at.
    pub fn has_others(self) -> bool {
        self == Extent::All
    }
}
