//! Whether a policy held, and for the memory on which it did not, why: the rules that `metal` applies to a running
//! process, applied to the model's tables.
//!
//! Memory is looked at when it goes (munmap, MADV_DONTNEED, what a new mapping replaces, exec) and at the end. Every byte
//! that the policy concerns and does not cover gets the first cause that applies: what is there instead; the shape of the
//! mapping; what the program said about huge pages; what happened to the slot, an aligned stretch of the size asked for.

use paging::{Error, Format};
use study::cause::Cause;
use study::verdict::Verdict;
use trace::Call;

use super::folio::CONTIG_BYTES;
use super::paged::Paged;
use super::part::Part;
use super::places::{is_file, is_zeros};
use super::process::Process;
use super::seen::{LeftOut, Seen, Slot};
use super::vma::{Advice, Backing, Vma};
use crate::address::Pa;
use crate::policy::Granule;

/// `LARGE_BYTES` of crates/metal/src/tracer/leaving.rs.
const LOOKED_AT_BYTES: u64 = 1 << 20;
/// `LARGE_DROP_BYTES` there.
const LOOKED_AT_DROP_BYTES: u64 = 16 << 20;

/// Whether the tracer of `pagelab compare` looks at memory before a call takes it away (crates/metal/src/tracer/leaving.rs):
/// where it is large, since each look takes time. Without `--prove-all` it does not look at what
/// heaps give back, what mappings replace, or `exec`.
pub(super) fn is_looked_at(call: &Call) -> bool {
    match call {
        Call::Munmap { bytes, .. } => *bytes >= LOOKED_AT_BYTES,
        Call::Madvise { bytes, .. } => *bytes >= LOOKED_AT_DROP_BYTES,
        _ => false,
    }
}

impl<F: Format> Paged<F> {
    /// Looks at whole base pages whose memory is about to go.
    pub(super) fn witness(&mut self, begin: u64, end: u64) -> Result<(), Error> {
        let mut seen = std::mem::take(&mut self.seen);
        let (concerned_bytes, covered_bytes) = (seen.concerned_bytes, seen.covered_bytes);
        let looked = self.look_into(&self.processes.running, begin, end, &mut seen);
        if !seen.is_looked_at {
            seen.left_out.concerned_bytes += seen.concerned_bytes - concerned_bytes;
            seen.left_out.covered_bytes += seen.covered_bytes - covered_bytes;
        }
        self.seen = seen;
        looked
    }

    /// What `pagelab compare` would have left out of the verdict without `--prove-all`.
    pub(super) fn unwitnessed(&self) -> LeftOut {
        self.seen.left_out
    }

    /// The verdict on everything that there was, in all processes.
    pub(super) fn judge(&self) -> Result<Verdict, Error> {
        let mut seen = self.seen.clone();
        if let Granule::Direct(leaf_bytes) = self.plan.granule {
            seen.direct(&self.processes.running.tables.census()?, leaf_bytes);
        }
        for process in std::iter::once(&self.processes.running).chain(self.processes.others.values()) {
            self.look_into(process, 0, u64::MAX, &mut seen)?;
        }
        Ok(seen.verdict(self.costs.allocation_fallbacks))
    }

    fn look_into(&self, process: &Process<F>, begin: u64, end: u64, seen: &mut Seen) -> Result<(), Error> {
        let slot_bytes = self.slot_bytes();
        let (mut place, mut open): (Option<(u64, Vma)>, Option<Slot>) = (None, None);
        for part in self.mapped_in(process, begin, end)? {
            let known = place.filter(|(first, vma)| (*first..vma.end).contains(&part.va));
            place = known.or_else(|| place_of(process, &part));
            let (is_concerned, is_zero) = (self.is_concerned(&part, place), is_zero(&part));
            let start = part.va & !(slot_bytes - 1);
            if open.as_ref().is_some_and(|slot| slot.begin != start) {
                seen.close(open.take(), slot_bytes);
            }
            if is_concerned {
                seen.concerned_bytes += part.bytes;
            }
            let missing = is_concerned && !self.is_as_asked(process, &part, (begin, end), seen);
            if missing && let Some(cause) = self.certain_cause(process, &part, place, slot_bytes) {
                seen.add(cause, part.bytes);
                continue;
            }
            if is_concerned || is_zero {
                let empty = Slot { begin: start, present_bytes: 0, missing_bytes: 0, has_zeros: false };
                let slot = open.get_or_insert(empty);
                slot.present_bytes += part.bytes;
                slot.missing_bytes += if missing { part.bytes } else { 0 };
                slot.has_zeros |= is_zero;
            }
        }
        seen.close(open, slot_bytes);
        Ok(())
    }

    /// What the VMAs of a range of whole base pages map; the range itself may be more than tables can hold.
    fn mapped_in(&self, process: &Process<F>, begin: u64, end: u64) -> Result<Vec<Part>, Error> {
        let mut parts = Vec::new();
        let mut at = begin;
        for (first, vma) in process.vmas.within(begin, end) {
            let (first, last) = (first & !(self.base - 1), vma.end.next_multiple_of(self.base));
            let first = first.max(at);
            if first < last {
                parts.extend(process.parts(first, last)?);
                at = last;
            }
        }
        Ok(parts)
    }

    /// The size that the policy asks for.
    fn slot_bytes(&self) -> u64 {
        match self.plan.granule {
            Granule::Base => self.base,
            Granule::Mthp(bytes) | Granule::Thp(bytes) | Granule::Hugetlb(bytes) | Granule::Direct(bytes) => bytes,
            Granule::Contig64k => CONTIG_BYTES,
        }
    }

    /// Private anonymous memory and pages of pools.
    fn is_concerned(&self, part: &Part, place: Option<(u64, Vma)>) -> bool {
        let is_shared = place.is_some_and(|(_, vma)| matches!(vma.backing, Backing::Shared(_)));
        !is_file(part.pa) && !is_zero(part) && !is_shared
    }

    /// Whether a part is mapped as asked; where something else is there instead, its cause is noted. `true` means that no
    /// other cause need be looked for.
    fn is_as_asked(&self, process: &Process<F>, part: &Part, range: (u64, u64), seen: &mut Seen) -> bool {
        let instead = self.instead(process, part, range);
        match instead {
            Instead::Nothing => seen.covered_bytes += part.bytes,
            Instead::Because(cause) => seen.add(cause, part.bytes),
            Instead::Smaller => return false,
        }
        true
    }

    fn instead(&self, process: &Process<F>, part: &Part, (begin, end): (u64, u64)) -> Instead {
        let folio = self.memory.folios.holding(part.pa);
        let (folio_bytes, is_whole) = folio.unwrap_or((self.base, true));
        let is_large = part.leaf_bytes > self.base;
        // What `mremap` has moved may be misaligned, and what goes may be a part of a folio.
        let (first, is_aligned) =
            (part.va & !(folio_bytes - 1), part.va.wrapping_sub(part.pa.0) & (folio_bytes - 1) == 0);
        let is_inside = begin <= first && folio_bytes <= end - first.min(end);
        let is_whole = is_whole && (is_large || is_aligned && is_inside);
        match self.plan.granule {
            _ if self.plan.no_huge || self.plan.granule == Granule::Base => {
                if is_large || folio_bytes > self.base {
                    Instead::Because(Cause::LargerThanAsked)
                } else {
                    Instead::Nothing
                }
            }
            Granule::Contig64k if part.grouped => Instead::Nothing,
            // The block is there, but its bit was taken away.
            Granule::Contig64k if self.is_whole_block(process, part) => Instead::Because(Cause::LeafSplit),
            Granule::Contig64k | Granule::Base | Granule::Direct(_) => Instead::Smaller,
            Granule::Mthp(bytes) | Granule::Thp(bytes) | Granule::Hugetlb(bytes) => match folio_bytes {
                found if found > bytes => Instead::Because(Cause::LargerThanAsked),
                found if found < bytes => Instead::Smaller,
                _ if !is_whole => Instead::Because(Cause::FolioPartlyMapped),
                _ if matches!(self.plan.granule, Granule::Thp(_)) && !is_large => Instead::Because(Cause::LeafSplit),
                _ => Instead::Nothing,
            },
        }
    }

    /// Whether all of the block of the proposal around a part is mapped to one block of memory.
    fn is_whole_block(&self, process: &Process<F>, part: &Part) -> bool {
        let offset = part.va & (CONTIG_BYTES - 1);
        let (va, pa) = (part.va - offset, part.pa.0.wrapping_sub(offset));
        let pages = (0..CONTIG_BYTES).step_by(self.base as usize);
        pages.into_iter().all(|at| process.physical(va + at) == Some(Pa(pa.wrapping_add(at))))
    }

    /// The cause that follows from the mapping alone, or from what the program said.
    fn certain_cause(
        &self,
        process: &Process<F>,
        part: &Part,
        place: Option<(u64, Vma)>,
        slot_bytes: u64,
    ) -> Option<Cause> {
        let Some((begin, vma)) = place else { return Some(Cause::Unexplained) };
        let (begin, end) = (begin & !(self.base - 1), vma.end.next_multiple_of(self.base));
        let slot = part.va & !(slot_bytes - 1);
        let asks_kernel = !matches!(self.plan.granule, Granule::Hugetlb(_));
        match vma.backing {
            Backing::Stack => Some(Cause::Stack),
            Backing::File | Backing::SharedFile => Some(Cause::PrivateFileCopy),
            _ if end - begin < slot_bytes => Some(Cause::MappingTooSmall),
            _ if slot < begin || slot + slot_bytes > end => Some(Cause::NoAlignedSlot),
            _ if asks_kernel && process.thp_disabled => Some(Cause::DisabledForProcess),
            _ if vma.advice == Advice::NoHuge => Some(Cause::AdvisedAgainst),
            _ if asks_kernel && !self.is_advised(vma) => Some(Cause::NotAdvised),
            _ => None,
        }
    }
}

/// The VMA of a part: the first one in it, where base pages are larger than those of system calls and it begins inside.
fn place_of<F: Format>(process: &Process<F>, part: &Part) -> Option<(u64, Vma)> {
    let inside = || process.vmas.after(part.va).filter(|(begin, _)| *begin < part.va + part.bytes);
    process.vmas.find(part.va).or_else(inside)
}

/// What stands where a policy asks for something.
enum Instead {
    /// What was asked for.
    Nothing,
    /// Something else, for this reason.
    Because(Cause),
    /// Smaller pages.
    Smaller,
}

fn is_zero(part: &Part) -> bool {
    is_zeros(part.pa)
}
