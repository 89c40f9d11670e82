//! Tests and writes many entries of a table at once, without a branch for each.

use crate::address::OutputAddress;
use crate::format::{Format, Kind, Pattern};

/// Number of entries tested at a time; the test may end after each batch.
const BATCH: usize = 128;

/// Whether all entries are zero, which is a hole in every format.
pub(super) fn all_zero(entries: &[u64]) -> bool {
    entries.chunks(BATCH).all(|entries| entries.iter().fold(0, |bits, entry| bits | entry) == 0)
}

/// Whether all entries are holes.
pub(super) fn all_holes<F: Format>(format: &F, level: u8, entries: &[u64]) -> bool {
    let is_hole = |entry: &u64| format.kind(level, *entry) == Kind::Hole;
    entries.chunks(BATCH).all(|entries| all_zero(entries) || entries.iter().all(is_hole))
}

/// Whether all entries, above level 0, match the format's pattern of pointers to tables. If `false`, they may still be pointers
/// to tables.
pub(super) fn all_tables(pattern: Pattern, entries: &[u64]) -> bool {
    entries.iter().fold(0, |bits, entry| bits | (entry & pattern.mask ^ pattern.value)) == 0
}

/// The common bits of leaves of one level, if the format can express them as bits.
pub(super) struct Alike<'a, F> {
    format: &'a F,
    level: u8,
    /// The bits that are equal in leaves with the same attributes; `None` if comparing bits proves nothing.
    common: Option<u64>,
}

impl<F: Format> Alike<'_, F> {
    pub(super) fn of(format: &F, level: u8) -> Alike<'_, F> {
        let geometry = format.geometry();
        let highest = ((1u64 << geometry.output_bits()) - 1) & !(geometry.page_bytes() - 1);
        let common = format.state_bits().map(|state| !(format.address_bits(level, highest, false) | state));
        Alike { format, level, common }
    }

    /// The number of entries, from the first on, that are recognizably leaves: the first is a leaf in no group, and the
    /// others differ from it only in their addresses and states. The entry after them may be a leaf too.
    pub(super) fn count(&self, entries: &[u64]) -> usize {
        let ([first, rest @ ..], Some(common)) = (entries, self.common) else { return 0 };
        if self.format.kind(self.level, *first) != Kind::Leaf || self.format.group_bits(self.level, *first) != 0 {
            return 0;
        }
        let is_alike = |entry: &u64| (entry ^ first) & common == 0;
        // If entries alternate, the count ends here: the caller continues at the next entry and would test the others again.
        if rest.first().is_some_and(|second| !is_alike(second)) {
            return 1;
        }
        let whole = entries.chunks(BATCH).take_while(|entries| differences(entries, *first) & common == 0).count();
        let whole = (whole * BATCH).min(entries.len());
        whole + entries[whole..].iter().take_while(|entry| is_alike(entry)).count()
    }
}

// Each of the following is one function for all formats, so that it is equally fast in each. They process eight entries
// at a time, and the last eight again if some are left over, because processors mispredict the end of loops over a few
// entries.

/// The bits in which any of these entries differs from `first`.
#[inline(never)]
fn differences(entries: &[u64], first: u64) -> u64 {
    let fold = |entries: &[u64]| entries.iter().fold(0, |bits, entry| bits | (entry ^ first));
    let (lines, few) = entries.as_chunks::<8>();
    let last = entries.last_chunk::<8>().map_or(few, |last| last);
    fold(lines.as_flattened()) | fold(last)
}

/// Keeps the bits `keeps` of entries and sets the bits `gets`.
#[inline(never)]
pub(super) fn rewrite(entries: &mut [u64], keeps: u64, gets: u64) {
    let new = |entry: &mut u64| *entry = *entry & keeps | gets;
    let (lines, _) = entries.as_chunks_mut::<8>();
    lines.iter_mut().for_each(|line| line.iter_mut().for_each(new));
    match entries.last_chunk_mut::<8>() {
        Some(last) => last.iter_mut().for_each(new),
        None => entries.iter_mut().for_each(new),
    }
}

/// Fills entries with leaves of consecutive memory from `pa` on.
#[inline]
pub(super) fn fill<F: Format>(format: &F, level: u8, entries: &mut [u64], leaf: u64, pa: OutputAddress, grouped: bool) {
    let span = format.geometry().span(level);
    let last = (entries.len() as u64).saturating_sub(1);
    let first = format.address_bits(level, pa.0, grouped);
    let end = format.address_bits(level, pa.0.wrapping_add(last.wrapping_mul(span)), grouped);
    let step = format.address_bits(level, span, grouped);
    if first.wrapping_add(step.wrapping_mul(last)) == end && leaf & (first | end) == 0 {
        // The address bits are contiguous, so they grow evenly.
        fill_evenly(entries, leaf | first, step);
    } else {
        fill_unevenly(format, level, entries, leaf, pa, grouped);
    }
}

/// As [`fill`], for formats whose address bits are not contiguous.
#[cold]
fn fill_unevenly<F: Format>(format: &F, level: u8, entries: &mut [u64], leaf: u64, pa: OutputAddress, grouped: bool) {
    let span = format.geometry().span(level);
    for (index, place) in (0u64..).zip(entries) {
        *place = leaf | format.address_bits(level, pa.0.wrapping_add(index.wrapping_mul(span)), grouped);
    }
}

/// Fills entries with values that grow by `step`.
#[inline(never)]
fn fill_evenly(entries: &mut [u64], first: u64, step: u64) {
    let value = |index: usize| first.wrapping_add(step.wrapping_mul(index as u64));
    let count = entries.len();
    let (lines, _) = entries.as_chunks_mut::<8>();
    fill_line_by_line(lines.as_flattened_mut(), first, step);
    match entries.last_chunk_mut::<8>() {
        Some(last) => fill_line_by_line(last, value(count - 8), step),
        None => fill_line_by_line(entries, first, step),
    }
}

#[inline(always)]
fn fill_line_by_line(entries: &mut [u64], first: u64, step: u64) {
    let mut value = first;
    for entry in entries {
        *entry = value;
        value = value.wrapping_add(step);
    }
}
