//! Commit accounting of VMAs (`Committed_AS`).

use policy::call::{map, prot};

/// How a private VMA counts as committed memory. The kernel does not merge VMAs that count differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// Not counted now: it is not writable, and has no anonymous pages from a time when it was.
    NotYet,
    /// Counted completely (`VM_ACCOUNT`).
    Accounted,
    /// Never counted, because of MAP_NORESERVE (`VM_NORESERVE`).
    NoReserve,
}

impl Accounting {
    /// The accounting of a new mapping (`accountable_mapping`, mm/vma.c), if vm.overcommit_memory is not 2.
    pub fn of_mapping(protection: u64, flags: u64) -> Accounting {
        match (flags & map::NORESERVE != 0, protection & prot::WRITE != 0) {
            (true, _) => Accounting::NoReserve,
            (false, true) => Accounting::Accounted,
            (false, false) => Accounting::NotYet,
        }
    }

    /// The accounting after the protection has changed (`mprotect_fixup`, mm/mprotect.c).
    pub fn protected(self, protection: u64, has_anonymous_pages: bool) -> Accounting {
        match (self, protection & prot::WRITE != 0) {
            (Accounting::NotYet, true) => Accounting::Accounted,
            (Accounting::Accounted, false) if !has_anonymous_pages => Accounting::NotYet,
            (same, _) => same,
        }
    }
}
