//! Advice of programs (`madvise`), and populating memory.

use ::policy::call::madv;
use paging::Format;

use super::error::SpaceError;
use super::paged::AddressSpaces;
use super::vma::{Advice, AtFork, Vma};
use crate::call::{PROT_READ, PROT_WRITE};

// include/uapi/asm-generic/mman-common.h: the same on x86-64, arm64 and riscv64.
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_DONTFORK: u64 = 10;
const MADV_DOFORK: u64 = 11;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_WIPEONFORK: u64 = 18;
const MADV_KEEPONFORK: u64 = 19;
const MADV_COLD: u64 = 20;
const MADV_PAGEOUT: u64 = 21;
const MADV_POPULATE_READ: u64 = 22;
const MADV_POPULATE_WRITE: u64 = 23;
const MADV_DONTNEED_LOCKED: u64 = 24;
const MADV_COLLAPSE: u64 = 25;
/// Advice whose effect is not modelled. MADV_PAGEOUT is modelled in part: as on a kernel without swap.
const UNMODELLED: [(u64, &str); 4] = [
    (madv::REMOVE, "MADV_REMOVE"),
    (madv::MERGEABLE, "MADV_MERGEABLE"),
    (MADV_PAGEOUT, "MADV_PAGEOUT"),
    (madv::GUARD_INSTALL, "MADV_GUARD_INSTALL"),
];

impl<F: Format> AddressSpaces<F> {
    pub(super) fn advise(&mut self, begin: u64, end: u64, advice: u64) -> Result<(), SpaceError> {
        if let Some((_, name)) = UNMODELLED.iter().find(|(number, _)| *number == advice) {
            let bytes = self.costs.unmodelled_advice.entry(name).or_default();
            *bytes = bytes.saturating_add(end - begin);
        }
        match advice {
            MADV_HUGEPAGE => self.change_vmas(begin, end, |vma| vma.set_advice(Advice::Huge)),
            MADV_NOHUGEPAGE => self.change_vmas(begin, end, |vma| vma.set_advice(Advice::NoHuge)),
            MADV_DONTFORK => self.change_vmas(begin, end, |vma| vma.at_fork = AtFork::Omitted),
            MADV_WIPEONFORK => self.change_vmas(begin, end, |vma| {
                // The kernel refuses MADV_WIPEONFORK for other memory.
                if vma.backing.is_private_memory() {
                    vma.at_fork = AtFork::Wiped;
                }
            }),
            MADV_DOFORK | MADV_KEEPONFORK => self.change_vmas(begin, end, |vma| vma.at_fork = AtFork::Copied),
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
                // Frees whole base pages only; the model's base pages can be larger than those of the recorded kernel.
                let (first, last) = (begin.next_multiple_of(self.base), end & !(self.base - 1));
                if first < last {
                    self.witness_call(first, last)?;
                    self.drop_range(first, last)?;
                    self.reclaim_tables(first, last)?;
                }
                Ok(())
            }
            MADV_FREE => self.advise_free(begin, end),
            MADV_COLD => self.advise_cold(begin, end),
            MADV_PAGEOUT => self.advise_pageout(begin, end),
            MADV_COLLAPSE => self.advise_collapse(begin, end),
            MADV_POPULATE_READ => self.populate(begin, end, false),
            MADV_POPULATE_WRITE => self.populate(begin, end, true),
            _ => Ok(()),
        }
    }

    /// Changes properties of VMAs, and splits the leaves in which a VMA now begins or ends.
    pub(super) fn change_vmas(&mut self, begin: u64, end: u64, change: impl Fn(&mut Vma)) -> Result<(), SpaceError> {
        self.processes.running.vmas.change(begin, end, change);
        self.split_at_edge(begin)?;
        Ok(self.split_at_edge(end)?)
    }

    /// Faults in every page of a range, up to the first VMA whose protection forbids it (`check_vma_flags`, mm/gup.c). A VMA
    /// larger than the machine's memory fails at once.
    pub(super) fn populate(&mut self, begin: u64, end: u64, store: bool) -> Result<(), SpaceError> {
        let before = self.costs.faults();
        let populated = self.populate_pages(begin, end, store);
        self.costs.populated_faults += self.costs.faults() - before;
        populated
    }

    fn populate_pages(&mut self, begin: u64, end: u64, store: bool) -> Result<(), SpaceError> {
        let needed = if store { PROT_WRITE } else { PROT_READ | PROT_WRITE };
        for (from, vma) in self.processes.running.vmas.within(begin, end) {
            if vma.protection & needed == 0 {
                return Ok(());
            }
            if vma.end - from > self.memory.bytes {
                return Err(SpaceError::OutOfMemory { va: from, base_bytes: self.base });
            }
            let mut at = from & !(self.base - 1);
            while at < vma.end {
                let present = self.leaf(at).filter(|leaf| leaf.writable || !store);
                if present.is_none() {
                    self.fault(at, store)?;
                }
                at += self.base;
            }
        }
        Ok(())
    }
}
