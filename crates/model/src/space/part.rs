//! Parts of memory, each mapped by one leaf, and common properties of adjacent parts.

use crate::address::Pa;

/// A part of memory that one leaf maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) va: u64,
    pub(super) pa: Pa,
    pub(super) bytes: u64,
    /// Size of the leaf, or of all leaves of a software page together.
    pub(super) leaf_bytes: u64,
    pub(super) grouped: bool,
    pub(super) writable: bool,
}

/// Merges parts of contiguous memory, so that groups are mapped as groups again.
pub(super) fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(before)
                if before.va + before.bytes == part.va
                    && before.pa + before.bytes == part.pa
                    && (before.leaf_bytes, before.grouped, before.writable)
                        == (part.leaf_bytes, part.grouped, part.writable) =>
            {
                before.bytes += part.bytes;
            }
            _ => all.push(part),
        }
    }
    all
}

/// Ranges of memory that is contiguous at contiguous addresses, however it is mapped: a folio that is unmapped
/// completely is released at once (`folio_pte_batch`, mm/internal.h).
pub(super) fn contiguous(parts: &[Part]) -> Vec<(Pa, u64)> {
    let mut all: Vec<(Pa, u64)> = Vec::new();
    let mut next_va = None;
    for part in parts {
        match all.last_mut() {
            Some((pa, bytes)) if next_va == Some(part.va) && *pa + *bytes == part.pa => *bytes += part.bytes,
            _ => all.push((part.pa, part.bytes)),
        }
        next_va = Some(part.va + part.bytes);
    }
    all
}

/// Ranges of adjacent parts for which `may` returns the same value.
pub(super) fn stretches(parts: &[Part], may: impl Fn(&Part) -> bool) -> Vec<(u64, u64, bool)> {
    let mut stretches: Vec<(u64, u64, bool)> = Vec::new();
    for part in parts {
        let may = may(part);
        match stretches.last_mut() {
            Some((_, end, alike)) if *end == part.va && *alike == may => *end += part.bytes,
            _ => stretches.push((part.va, part.va + part.bytes, may)),
        }
    }
    stretches
}
