//! The address ranges that system calls affect, and whether a program can have them.

use trace::{Call, Event};

/// The unit of system calls: recorded programs ran with 4K pages.
pub(crate) const PAGE_BYTES: u64 = 4096;

// include/uapi/asm-generic/mman-common.h: the same on x86-64, arm64 and riscv64.
pub(crate) const PROT_READ: u64 = 1;
pub(crate) const PROT_WRITE: u64 = 2;
pub(crate) const PROT_EXEC: u64 = 4;

/// What a call affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affected {
    /// A range of the program's memory: its first address and its length in bytes.
    Range(u64, u64),
    /// A range of length 0, which the call allows.
    Empty,
    /// No address range.
    NoRange,
}

/// The range that a successful call affected; for `mremap` the new range.
pub(crate) fn affected(event: &Event) -> Affected {
    let result = event.result as u64;
    match event.call {
        Call::Mmap { bytes, .. } => Affected::Range(result, bytes),
        Call::Mremap { new_bytes, .. } => Affected::Range(result, new_bytes),
        Call::Munmap { address, bytes } => Affected::Range(address, bytes),
        Call::Region { bytes: 0, .. } | Call::Mprotect { bytes: 0, .. } | Call::Madvise { bytes: 0, .. } => {
            Affected::Empty
        }
        // A heap may begin anywhere in a page.
        Call::Region { address, bytes, .. } => {
            let offset = address & (PAGE_BYTES - 1);
            Affected::Range(address - offset, bytes.saturating_add(offset))
        }
        Call::Mprotect { address, bytes, .. }
        | Call::Madvise { address, bytes, .. }
        | Call::Hole { address, bytes } => Affected::Range(address, bytes),
        Call::Mlock { bytes: 0, .. } => Affected::Empty,
        // The kernel extends the range to whole pages.
        Call::Mlock { address, bytes, .. } => {
            let offset = address & (PAGE_BYTES - 1);
            Affected::Range(address - offset, bytes.saturating_add(offset))
        }
        _ => Affected::NoRange,
    }
}

/// Rounds the end of a range up to a whole page. `None` if the range is empty, misaligned or ends above `user_end`: then
/// `munmap`, `mprotect` and similar calls fail with `EINVAL` or `ENOMEM` (mm/vma.c, mm/mprotect.c, mm/mremap.c).
pub(crate) fn user_range(begin: u64, bytes: u64, user_end: u64) -> Option<(u64, u64)> {
    let end = begin.checked_add(bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
    let is_valid = begin.is_multiple_of(PAGE_BYTES) && begin < end && end <= user_end;
    is_valid.then_some((begin, end))
}

/// Whether a kernel could have let this call succeed.
pub(crate) fn can_succeed(event: &Event, user_end: u64) -> bool {
    let is_valid = |begin, bytes| user_range(begin, bytes, user_end).is_some();
    match (affected(event), &event.call) {
        (Affected::Range(begin, bytes), Call::Mremap { address, old_bytes, .. }) => {
            is_valid(begin, bytes) && is_valid(*address, (*old_bytes).max(1))
        }
        (Affected::Range(begin, bytes), _) => is_valid(begin, bytes),
        (Affected::NoRange, Call::Brk { .. }) => event.result as u64 <= user_end,
        _ => true,
    }
}
