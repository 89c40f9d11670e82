//! Checks the levels of TLBs: they must be consecutive, and it must be unambiguous which TLB of a level stores a page.

use ::policy::size::PageSize;

use super::shape::{AccessKind, TlbShape};

/// The first TLB that serves the same kind of access and page size as an earlier TLB of its level: its index, and a description of
/// the conflict.
pub(super) fn ambiguous_tlb(tlbs: &[TlbShape]) -> Option<(usize, String)> {
    tlbs.iter().enumerate().find_map(|(index, tlb)| {
        let found = tlbs[..index].iter().find_map(|earlier| Some((earlier, shared(earlier, tlb)?)));
        let (earlier, (serves, size)) = found?;
        let accesses = match serves {
            AccessKind::Fetch => "fetches",
            AccessKind::Load => "loads",
            AccessKind::Store => "stores",
        };
        let (level, name) = (tlb.level, &earlier.name);
        Some((index, format!("a second TLB of level {level} for {accesses} of {size} pages, in addition to {name:?}")))
    })
}

fn shared(one: &TlbShape, other: &TlbShape) -> Option<(AccessKind, PageSize)> {
    if one.level != other.level {
        return None;
    }
    let serves = one.serves.iter().find(|serves| other.serves.contains(serves))?;
    let size = one.holds.iter().find(|size| other.holds.contains(size))?;
    Some((*serves, *size))
}

/// The lowest level that exists although the previous level does not.
pub(super) fn level_after_gap(tlbs: &[TlbShape]) -> Option<u8> {
    let exists = |level: u8| tlbs.iter().any(|tlb| tlb.level == level);
    tlbs.iter().map(|tlb| tlb.level).filter(|level| *level > 1 && !exists(level - 1)).min()
}
