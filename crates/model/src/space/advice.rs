//! Which memory large folios are asked for.
//!
//! The kernel is told `madvise`, and `pagelab` advises (MADV_HUGEPAGE) what its tracer stops at anyway
//! (crates/tracer/src/calls.rs, rewriting.rs): mappings from a sixteenth of the policy's size on with all that they are
//! joined with, larger pieces of reservations, the heap, and zeroed data in which a folio fits. The rest has base pages, also
//! where it lies beside advised memory: VMAs that differ in their advice are not joined.

use paging::Format;

use super::paged::Paged;
use super::vma::{Advice, Backing, Vma};
use crate::call::PROT_WRITE;
use crate::policy::Granule;

const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_STACK: u64 = 0x2_0000;
const MAP_HUGETLB: u64 = 0x4_0000;
/// Base pages of the smallest piece of a reservation that is advised.
const PIECE_PAGES: u64 = 16;

impl<F: Format> Paged<F> {
    /// The smallest mapping that can hold a folio by itself.
    fn large_bytes(&self) -> Option<u64> {
        match self.plan.granule {
            Granule::Mthp(bytes) => self.kernel.smaller_folios.iter().copied().chain([bytes]).min(),
            Granule::Thp(bytes) => Some(bytes),
            Granule::Base | Granule::Contig64k | Granule::Hugetlb(_) | Granule::Direct(_) => None,
        }
    }

    /// The smallest mapping that is advised (`Rewriting::advised_bytes`).
    pub(super) fn advised_bytes(&self) -> Option<u64> {
        self.large_bytes().map(|large| (large / 16).max(PIECE_PAGES * self.base).min(large))
    }

    /// Gives the advice to a mapping that was just made, and to all that it was joined with: that has none yet.
    pub(super) fn advise_joined(&mut self, begin: u64) {
        if let Some((first, joined)) = self.processes.running.vmas.find(begin) {
            self.processes.running.vmas.change(first, joined.end, |vma| vma.advice = Advice::Huge);
        }
    }

    /// The advice for a new mapping of as many bytes as the program asked for.
    pub(super) fn advice_for_mapping(&self, bytes: u64, flags: u64) -> Advice {
        // MAP_STACK means VM_NOHUGEPAGE since Linux 6.7 (mm/mmap.c).
        if flags & MAP_STACK != 0 {
            return Advice::NoHuge;
        }
        let may = flags & MAP_ANONYMOUS != 0 && flags & (MAP_GROWSDOWN | MAP_HUGETLB) == 0;
        let is_piece = flags & MAP_FIXED != 0 && bytes >= PIECE_PAGES * self.base;
        match self.advised_bytes() {
            Some(from) if may && (bytes >= from || is_piece) => Advice::Huge,
            _ => Advice::None,
        }
    }

    /// That for memory that a program has when it begins.
    pub(super) fn advice_for_early(&self, bytes: u64, protection: u64, backing: Backing) -> Advice {
        let is_writable = backing == Backing::Anonymous && protection & PROT_WRITE != 0;
        match self.large_bytes() {
            Some(large) if is_writable && bytes >= large => Advice::Huge,
            _ => Advice::None,
        }
    }

    /// That for what a heap has grown by.
    pub(super) fn advice_for_heap(&self) -> Advice {
        self.advised_bytes().map_or(Advice::None, |_| Advice::Huge)
    }

    /// Gives the advice to what has outgrown the size in `mremap`; before, it was too small.
    pub(super) fn advise_grown(&mut self, begin: u64, old_bytes: u64, new_bytes: u64) {
        let has_outgrown = self.advised_bytes().is_some_and(|from| old_bytes < from && new_bytes >= from);
        let is_anonymous =
            || self.processes.running.vmas.find(begin).is_some_and(|(_, vma)| vma.backing == Backing::Anonymous);
        if has_outgrown && is_anonymous() {
            self.advise_joined(begin);
        }
    }

    /// Whether the kernel may give a VMA large folios.
    pub(super) fn is_advised(&self, vma: Vma) -> bool {
        match vma.advice {
            Advice::Huge => true,
            Advice::NoHuge => false,
            // No call made memory that no event tells of.
            Advice::None => self.advised_bytes().is_none() || vma.backing == Backing::Inferred,
        }
    }
}
