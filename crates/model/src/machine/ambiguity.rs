//! Checks TLBs of the same level: it must be unambiguous which of them stores a page.

use ::policy::size::PageSize;

use super::shape::{Serves, TlbShape};

/// The first TLB that shares a page size for a kind of access with an earlier one of its level: its index, and a
/// description of the conflict.
pub(super) fn second_of_a_kind(tlbs: &[TlbShape]) -> Option<(usize, String)> {
    tlbs.iter().enumerate().find_map(|(index, tlb)| {
        let found = tlbs[..index].iter().find_map(|before| Some((before, shared(before, tlb)?)));
        let (before, (serves, size)) = found?;
        let accesses = match serves {
            Serves::Fetch => "fetches",
            Serves::Load => "loads",
            Serves::Store => "stores",
        };
        let (level, name) = (tlb.level, &before.name);
        Some((index, format!("a second TLB of level {level} for {accesses} of {size} pages, in addition to {name:?}")))
    })
}

fn shared(one: &TlbShape, other: &TlbShape) -> Option<(Serves, PageSize)> {
    if one.level != other.level {
        return None;
    }
    let serves = one.serves.iter().find(|serves| other.serves.contains(serves))?;
    let size = one.holds.iter().find(|size| other.holds.contains(size))?;
    Some((*serves, *size))
}

/// A level that exists although the previous level does not.
pub(super) fn level_without_the_one_before(tlbs: &[TlbShape]) -> Option<u8> {
    let is_there = |level: u8| tlbs.iter().any(|tlb| tlb.level == level);
    tlbs.iter().map(|tlb| tlb.level).filter(|level| *level > 1 && !is_there(level - 1)).min()
}
