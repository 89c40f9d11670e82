//! Looking at many entries of a table at once, without a branch for each.

use crate::format::{Format, Kind, Pattern};

/// Entries of one look; after each it may end.
const LOOK: usize = 64;

/// Whether all entries are zero: holes, in every format.
pub(super) fn all_zero(entries: &[u64]) -> bool {
    entries.chunks(LOOK).all(|entries| entries.iter().fold(0, |bits, entry| bits | entry) == 0)
}

/// Whether all entries are holes.
pub(super) fn all_holes<F: Format>(format: &F, level: u8, entries: &[u64]) -> bool {
    let is_hole = |entry: &u64| format.kind(level, *entry) == Kind::Hole;
    entries.chunks(LOOK).all(|entries| all_zero(entries) || entries.iter().all(is_hole))
}

/// Whether all entries above level 0 point to tables, as the format's pattern tells them. `false` says nothing.
pub(super) fn all_tables(pattern: Pattern, entries: &[u64]) -> bool {
    entries.iter().fold(0, |bits, entry| bits | (entry & pattern.mask ^ pattern.value)) == 0
}

/// Whether all entries are plainly leaves: the first one is, in no group, and the others differ from it in their
/// addresses and states only. `false` says nothing.
pub(super) fn all_alike<F: Format>(format: &F, level: u8, entries: &[u64]) -> bool {
    let (Some(first), Some(state)) = (entries.first().copied(), format.state_bits()) else { return false };
    if format.kind(level, first) != Kind::Leaf || format.group_bits(level, first) != 0 {
        return false;
    }
    let geometry = format.geometry();
    let highest = ((1u64 << geometry.output_bits()) - 1) & !(geometry.page_bytes() - 1);
    let may_differ = format.address_bits(level, highest, false) | state;
    entries.chunks(LOOK).all(|entries| entries.iter().fold(0, |bits, entry| bits | (entry ^ first)) & !may_differ == 0)
}

/// Fills entries with leaves of consecutive memory from `pa` on.
#[inline]
pub(super) fn fill<F: Format>(format: &F, level: u8, entries: &mut [u64], leaf: u64, pa: u64, grouped: bool) {
    let span = format.geometry().span(level);
    let bits = |index: u64| format.address_bits(level, pa.wrapping_add(index.wrapping_mul(span)), grouped);
    let last = (entries.len() as u64).saturating_sub(1);
    let (first, end) = (bits(0), bits(last));
    let step = format.address_bits(level, span, grouped);
    if first.wrapping_add(step.wrapping_mul(last)) == end && leaf & (first | end) == 0 {
        // The bits of the address grow evenly.
        let mut entry = leaf | first;
        for place in entries {
            *place = entry;
            entry = entry.wrapping_add(step);
        }
    } else {
        for (index, place) in (0u64..).zip(entries) {
            *place = leaf | bits(index);
        }
    }
}
