//! Which memory a witness looks at before a call gives it back. Every look takes time, so it looks at large ranges only, unless all
//! is to be seen.

use crate::call::{Call, madv, map, mremap};
use crate::size::PageSize;

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

    /// Whether what goes by a call is looked at.
    pub fn has(self, going: &Going, call: &Call) -> bool {
        match (going, call) {
            (Going::Unmapped(start, end), Call::Munmap { .. }) => self.has_unmap(end - start),
            (Going::Dropped(start, end), Call::Madvise { advice, .. }) => self.has_drop(end - start, *advice),
            _ => self.has_others(),
        }
    }
}

/// Advice after which content may be gone.
pub const DROPS: [u64; 4] = [madv::DONTNEED, madv::DONTNEED_LOCKED, madv::FREE, madv::GUARD_INSTALL];

/// What a call does to the memory that it names: from a first address to the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// The addresses go, with what is there.
    Unmapped(u64, u64),
    /// The content goes.
    Dropped(u64, u64),
    /// The kernel may take the content; pages of a pool stay.
    Freed(u64, u64),
}

impl Going {
    /// What goes by a call. Of brk only who knows the heap can say that.
    pub fn by(call: &Call, base: PageSize) -> Option<Going> {
        let range = |start: u64, bytes: u64| {
            let end = start.checked_add(bytes).and_then(|end| base.align_up(end))?;
            (start < end).then_some((start, end))
        };
        let unmapped = |start, bytes| range(start, bytes).map(|(start, end)| Going::Unmapped(start, end));
        match *call {
            Call::Munmap { address, bytes } => unmapped(address, bytes),
            Call::Mmap { address, bytes, flags, .. } if flags & map::FIXED != 0 => unmapped(address, bytes),
            Call::Mremap { new_bytes, flags, new_address, .. } if flags & mremap::FIXED != 0 => {
                unmapped(new_address, new_bytes)
            }
            Call::Mremap { address, old_bytes, new_bytes, .. } => {
                unmapped(address.checked_add(new_bytes)?, old_bytes.checked_sub(new_bytes)?)
            }
            Call::Madvise { address, bytes, advice: madv::FREE } => {
                range(address, bytes).map(|(start, end)| Going::Freed(start, end))
            }
            Call::Madvise { address, bytes, advice } if DROPS.contains(&advice) => {
                range(address, bytes).map(|(start, end)| Going::Dropped(start, end))
            }
            _ => None,
        }
    }
}
