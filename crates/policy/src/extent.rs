//! [`InspectedRemovals`]: which memory a witness examines before a call gives it back. Each examination takes time, so by
//! default only large ranges are examined.

use crate::call::{Call, madv, map, mremap};
use crate::removal::DROPPING_ADVICE;
use crate::size::PageSize;

/// The smallest range that is examined before it is unmapped.
pub const LARGE_BYTES: u64 = 1 << 20;

/// The smallest range that is examined before its content is dropped (MADV_DONTNEED). It is larger than a thread's stack, whose
/// content glibc drops when the thread ends.
pub const LARGE_DROP_BYTES: u64 = 16 << 20;

/// How much of the memory that is given back is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedRemovals {
    /// Large ranges that munmap and MADV_DONTNEED give back.
    Large,
    /// All of it, by the rules of [`crate::removal`].
    All,
}

impl InspectedRemovals {
    /// Whether memory that munmap gives back is examined.
    pub fn includes_unmap(self, bytes: u64) -> bool {
        self == InspectedRemovals::All || bytes >= LARGE_BYTES
    }

    /// Whether memory that this advice drops is examined.
    pub fn includes_drop(self, bytes: u64, advice: u64) -> bool {
        self == InspectedRemovals::All || advice == madv::DONTNEED && bytes >= LARGE_DROP_BYTES
    }

    /// Whether memory that other calls give back is examined.
    pub fn includes_others(self) -> bool {
        self == InspectedRemovals::All
    }

    /// Whether memory that this call gives back is examined.
    pub fn includes(self, removal: &Removal, call: &Call) -> bool {
        match (removal, call) {
            (Removal::Unmapped(start, end), Call::Munmap { .. }) => self.includes_unmap(end - start),
            (Removal::Dropped(start, end), Call::Madvise { advice, .. }) => self.includes_drop(end - start, *advice),
            _ => self.includes_others(),
        }
    }
}

/// What a call does to a range: its first address and the address after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The range is unmapped, with its content.
    Unmapped(u64, u64),
    /// The content is dropped; the range stays mapped.
    Dropped(u64, u64),
    /// The kernel may reclaim the content; hugetlb pages keep it.
    Freed(u64, u64),
}

impl Removal {
    /// What a call gives back. For brk this is `None`: the effect depends on the current end of the heap.
    pub fn by(call: &Call, base: PageSize) -> Option<Removal> {
        let range = |start: u64, bytes: u64| {
            let end = start.checked_add(bytes).and_then(|end| base.align_up(end))?;
            (start < end).then_some((start, end))
        };
        let unmapped = |start, bytes| range(start, bytes).map(|(start, end)| Removal::Unmapped(start, end));
        match *call {
            Call::Munmap { address, bytes } => unmapped(address, bytes),
            Call::Mmap { address, bytes, flags, .. } if flags & map::FIXED != 0 => unmapped(address, bytes),
            Call::Mremap { new_bytes, flags, new_address, .. } if flags & mremap::FIXED != 0 => {
                unmapped(new_address, new_bytes)
            }
            Call::Mremap { address, old_bytes, new_bytes, .. } => {
                let (old_bytes, new_bytes) = (base.align_up(old_bytes)?, base.align_up(new_bytes)?);
                unmapped(address.checked_add(new_bytes)?, old_bytes.checked_sub(new_bytes)?)
            }
            Call::Madvise { address, bytes, advice: madv::FREE } => {
                range(address, bytes).map(|(start, end)| Removal::Freed(start, end))
            }
            Call::Madvise { address, bytes, advice } if DROPPING_ADVICE.contains(&advice) => {
                range(address, bytes).map(|(start, end)| Removal::Dropped(start, end))
            }
            _ => None,
        }
    }
}
