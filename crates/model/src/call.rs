//! The ranges that system calls affect, and whether programs can have such ranges.

use trace::{Call, Event};

/// System calls count in base pages of 4K because recorded programs ran with those.
pub(crate) const PAGE_BYTES: u64 = 4096;

// include/uapi/asm-generic/mman-common.h: the same on x86-64, arm64 and riscv64.
pub(crate) const PROT_READ: u64 = 1;
pub(crate) const PROT_WRITE: u64 = 2;
pub(crate) const PROT_EXEC: u64 = 4;

/// The range that a call affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A range: its first address and its length in bytes.
    Range(u64, u64),
    /// A range of length 0, which is allowed.
    Nothing,
    /// The call does not affect a range.
    Else,
}

/// The range that a successful call affected; the new range for `mremap`.
pub(crate) fn object(event: &Event) -> Object {
    let result = event.result as u64;
    match event.call {
        Call::Mmap { bytes, .. } => Object::Range(result, bytes),
        Call::Mremap { new_bytes, .. } => Object::Range(result, new_bytes),
        Call::Munmap { address, bytes } => Object::Range(address, bytes),
        Call::Region { bytes: 0, .. } | Call::Mprotect { bytes: 0, .. } | Call::Madvise { bytes: 0, .. } => {
            Object::Nothing
        }
        // A heap may begin anywhere in a page.
        Call::Region { address, bytes, .. } => {
            let offset = address & (PAGE_BYTES - 1);
            Object::Range(address - offset, bytes.saturating_add(offset))
        }
        Call::Mprotect { address, bytes, .. } | Call::Madvise { address, bytes, .. } => Object::Range(address, bytes),
        _ => Object::Else,
    }
}

/// A range in whole pages, if programs whose addresses end at `user_end` can have it; otherwise `munmap`, `mprotect`
/// and similar calls refuse it (mm/vma.c, mm/mprotect.c, mm/mremap.c: `EINVAL`, `ENOMEM`).
pub(crate) fn range(begin: u64, bytes: u64, user_end: u64) -> Option<(u64, u64)> {
    let end = begin.checked_add(bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
    let is_sound = begin.is_multiple_of(PAGE_BYTES) && begin < end && end <= user_end;
    is_sound.then_some((begin, end))
}

/// Whether a kernel can have let a call succeed.
pub(crate) fn is_sound(event: &Event, user_end: u64) -> bool {
    let sound = |begin, bytes| range(begin, bytes, user_end).is_some();
    match (object(event), &event.call) {
        (Object::Range(begin, bytes), Call::Mremap { address, old_bytes, .. }) => {
            sound(begin, bytes) && sound(*address, (*old_bytes).max(1))
        }
        (Object::Range(begin, bytes), _) => sound(begin, bytes),
        (Object::Else, Call::Brk { .. }) => event.result as u64 <= user_end,
        _ => true,
    }
}
