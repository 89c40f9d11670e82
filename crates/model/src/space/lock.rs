//! Locked memory: `mlock` and `mlockall` populate what they lock (`populate_vma_page_range`, mm/gup.c). After
//! `mlockall(MCL_FUTURE)` every new mapping is populated too. A forked child has no locked memory.

use paging::Format;

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::vma::{Backing, Locked};
use crate::call::{PROT_EXEC, PROT_READ, PROT_WRITE};

// include/uapi/asm-generic/mman.h and mman-common.h.
const MLOCK_ONFAULT: u64 = 1;
const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;

impl<F: Format> AddressSpaces<F> {
    /// Locks a range, which splits VMAs at its ends. VMAs of hugetlb pages are not marked as locked (`mlock_fixup`,
    /// mm/mlock.c).
    pub(super) fn lock(&mut self, begin: u64, end: u64, flags: u64) -> Result<(), SpaceError> {
        let locked = if flags & MLOCK_ONFAULT != 0 { Locked::OnFault } else { Locked::All };
        for (begin, vma) in self.processes.running.vmas.within(begin, end) {
            if vma.backing != Backing::Hugetlb {
                self.change_vmas(begin, vma.end, |vma| vma.locked = locked)?;
            }
        }
        if locked == Locked::OnFault {
            return Ok(());
        }
        for (begin, vma) in self.processes.running.vmas.within(begin, end) {
            // Loads populate shared memory.
            let is_shared = matches!(vma.backing, Backing::Shared(_) | Backing::SharedFile);
            let is_accessible = vma.protection & (PROT_READ | PROT_WRITE | PROT_EXEC) != 0;
            if is_accessible && vma.backing != Backing::Vdso {
                self.populate(begin, vma.end, vma.protection & PROT_WRITE != 0 && !is_shared)?;
            }
        }
        Ok(())
    }

    /// Applies `mlockall` with these flags; 0 is `munlockall`.
    pub(super) fn lock_all(&mut self, flags: u64) -> Result<(), SpaceError> {
        let on_fault = flags & MCL_ONFAULT != 0;
        self.processes.running.lock_future = match (flags & MCL_FUTURE != 0, on_fault) {
            (false, _) => Locked::No,
            (true, false) => Locked::All,
            (true, true) => Locked::OnFault,
        };
        if flags & MCL_CURRENT != 0 {
            self.lock(0, self.user_end, if on_fault { MLOCK_ONFAULT } else { 0 })
        } else if flags == 0 {
            // munlockall
            self.change_vmas(0, self.user_end, |vma| vma.locked = Locked::No)
        } else {
            Ok(())
        }
    }
}
