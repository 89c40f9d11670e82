//! Accounting of the memory that the kernel commits to a VMA.

use policy::call::{map, prot};

/// How the kernel accounts a private VMA as committed memory. VMAs that differ in it are not merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing so far, because it could never be written.
    None,
    /// All of it (`VM_ACCOUNT`).
    Kept,
    /// Nothing, because of MAP_NORESERVE (`VM_NORESERVE`).
    Waived,
}

impl Promise {
    /// The accounting of a new mapping (`accountable_mapping`, mm/vma.c; if vm.overcommit_memory is not 2).
    pub fn of_mapping(protection: u64, flags: u64) -> Promise {
        match (flags & map::NORESERVE != 0, protection & prot::WRITE != 0) {
            (true, _) => Promise::Waived,
            (false, true) => Promise::Kept,
            (false, false) => Promise::None,
        }
    }

    /// The accounting of a VMA whose protection changes (`mprotect_fixup`, mm/mprotect.c).
    pub fn protected(self, protection: u64, has_anonymous_pages: bool) -> Promise {
        match (self, protection & prot::WRITE != 0) {
            (Promise::None, true) => Promise::Kept,
            (Promise::Kept, false) if !has_anonymous_pages => Promise::None,
            (same, _) => same,
        }
    }
}
