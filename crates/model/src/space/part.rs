//! Mapped memory as parts, each mapped by one leaf, and ranges of adjacent parts.

use crate::address::Pa;

/// Memory that one leaf maps, clipped to the range of interest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) va: u64,
    pub(super) pa: Pa,
    pub(super) bytes: u64,
    /// Size of the leaf in bytes. For a software page: of all its entries together.
    pub(super) leaf_bytes: u64,
    /// Whether the leaf is in a contiguous group.
    pub(super) grouped: bool,
    pub(super) writable: bool,
}

/// Merges adjacent parts of contiguous memory with the same kind of leaf, so that groups can be mapped as groups again.
pub(super) fn merged(parts: Vec<Part>) -> Vec<Part> {
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

/// Ranges that are contiguous in memory and in input addresses, with any leaves. A folio that is unmapped completely can
/// thus be freed at once (`folio_pte_batch`, mm/internal.h).
pub(super) fn contiguous_memory(parts: &[Part]) -> Vec<(Pa, u64)> {
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

/// Ranges of adjacent parts for which `property` has the same value, with this value.
pub(super) fn ranges_by(parts: &[Part], property: impl Fn(&Part) -> bool) -> Vec<(u64, u64, bool)> {
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    for part in parts {
        let value = property(part);
        match ranges.last_mut() {
            Some((_, end, before)) if *end == part.va && *before == value => *end += part.bytes,
            _ => ranges.push((part.va, part.va + part.bytes, value)),
        }
    }
    ranges
}
