//! Mappings in which a program uses a part that it has aligned to large pages, without unmapping the rest: `aligned_alloc` of
//! glibc, and allocators that reserve more than they need. The offset of the aligned part depends on the mapping's address. So on
//! Linux the offset differs from the recorded one.
//!
//! No call reports an alignment. The alignment shows in what a program does first with a new mapping: the program advises large
//! pages from an aligned address on, or touches an aligned page. Before that it may have touched the first page and the page in
//! front of the aligned part, where allocators keep lengths (`_int_memalign` of glibc, malloc/malloc.c).

use std::collections::BTreeMap;

use ::policy::call::{madv, map};
use trace::{Call, Event};

use super::linux::{HUGE, PAGE, pages};

/// A mapping: its recorded end, and its address in Linux's layout.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    to: u64,
}

/// The aligned part of a mapping, as recorded and in Linux's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AlignedPart {
    /// The whole mapping, as recorded.
    pub recorded: (u64, u64),
    /// The address of the whole mapping in Linux's layout.
    pub to: u64,
    /// The recorded start of the part, including the page in front of it if the program uses that page.
    pub begin: u64,
    /// The address of that start in Linux's layout.
    pub begin_to: u64,
}

/// Mappings in which the program may align a part, by recorded address.
#[derive(Clone, Debug, Default)]
pub(super) struct AlignedMappings {
    /// Mappings that no call has changed and that have no known aligned part.
    new: BTreeMap<u64, Mapping>,
    /// Mappings with an aligned part.
    with_part: BTreeMap<u64, Mapping>,
}

impl AlignedMappings {
    /// Notes a new mapping at `to`, which was recorded at the address `recorded`.
    pub fn note(&mut self, call: &Call, recorded: u64, to: u64) {
        if let Call::Mmap { bytes, flags, .. } = *call
            && may_have_part(bytes, flags)
        {
            self.new.insert(recorded, Mapping { end: recorded.saturating_add(pages(bytes)), to });
        }
    }

    /// Processes a call. If the call changes a mapping, the first use of that mapping no longer shows an alignment.
    pub fn apply(&mut self, event: &Event) {
        let Some((begin, end)) = changed(event) else { return };
        self.new.retain(|from, mapping| mapping.end <= begin || end <= *from);
        self.with_part
            .retain(|from, mapping| mapping.end <= begin || end <= *from || (begin, end) == (*from, mapping.end));
    }

    /// The aligned part of a new mapping, according to the pages that the program touches first, in order.
    pub fn touched(&mut self, recorded: u64, touched: &[u64]) -> Option<AlignedPart> {
        let is_first_used = touched.first() == Some(&recorded);
        let next = *touched.get(usize::from(is_first_used))?;
        let header_bytes = if is_first_used && !next.is_multiple_of(HUGE) { PAGE } else { 0 };
        self.part(recorded, next + header_bytes, header_bytes, is_first_used)
    }

    /// The aligned part of a new mapping, according to a call that advises large pages there.
    pub fn advised(&mut self, call: &Call) -> Option<AlignedPart> {
        let Call::Madvise { address, advice: madv::HUGEPAGE, .. } = *call else { return None };
        let recorded = *self.new.range(..address).next_back()?.0;
        self.part(recorded, address, 0, false)
    }

    /// The part that begins at the recorded address `aligned`, with `header_bytes` in front of it.
    fn part(&mut self, recorded: u64, aligned: u64, header_bytes: u64, is_first_used: bool) -> Option<AlignedPart> {
        let Mapping { end, to } = *self.new.get(&recorded)?;
        let head_bytes = aligned.checked_sub(recorded).filter(|bytes| *bytes > 0)?;
        let alignment = head_bytes.next_power_of_two().max(HUGE);
        // No program reserves more for the alignment than for the aligned part.
        if !aligned.is_multiple_of(alignment) || head_bytes > (end - recorded) / 2 {
            return None;
        }
        let begin_to = (to + u64::from(is_first_used)).next_multiple_of(alignment) - header_bytes;
        let mapping = self.new.remove(&recorded)?;
        self.with_part.insert(recorded, mapping);
        Some(AlignedPart { recorded: (recorded, end), to, begin: aligned - header_bytes, begin_to })
    }

    /// Removes a mapping with an aligned part that the program unmaps as a whole. Returns its address in Linux's layout; `None` if
    /// the recorded range is not such a mapping.
    pub fn take(&mut self, address: u64, bytes: u64) -> Option<u64> {
        let mapping = self.with_part.get(&address).filter(|mapping| mapping.end == address.saturating_add(bytes))?;
        let to = mapping.to;
        self.with_part.remove(&address);
        Some(to)
    }
}

/// Whether a mapping is anonymous memory with room for an aligned part.
pub(crate) fn may_have_part(bytes: u64, flags: u64) -> bool {
    let is_anonymous = flags & map::ANONYMOUS != 0 && flags & map::TYPE == map::PRIVATE;
    is_anonymous && flags & (map::FIXED | map::FIXED_NOREPLACE) == 0 && bytes > HUGE
}

/// The recorded range that a call maps, unmaps, moves or protects.
pub(crate) fn changed(event: &Event) -> Option<(u64, u64)> {
    let (begin, bytes) = match event.call {
        Call::Mmap { bytes, .. } => (event.result as u64, bytes),
        Call::Munmap { address, bytes } | Call::Mprotect { address, bytes, .. } => (address, bytes),
        Call::Mremap { address, old_bytes, .. } => (address, old_bytes),
        _ => return None,
    };
    Some((begin, begin.saturating_add(pages(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    /// The recorded address of a mapping of 18M and a page, and its address in Linux's layout.
    const FROM: u64 = 0x40_0017_7000;
    const TO: u64 = 0x7fff_e03f_1000;
    const BYTES: u64 = 18 * M + PAGE;
    /// The first multiple of 2M in the recorded mapping and in the translated one.
    const ALIGNED: u64 = 0x40_0020_0000;
    const ALIGNED_TO: u64 = 0x7fff_e040_0000;

    fn mapped(to: u64) -> AlignedMappings {
        let mut mappings = AlignedMappings::default();
        let call =
            Call::Mmap { address: 0, bytes: BYTES, protection: 3, flags: 0x22, file: -1, offset: 0, file_system: None };
        mappings.note(&call, FROM, to);
        mappings
    }

    fn advice(address: u64) -> Call {
        Call::Madvise { address, bytes: 16 * M, advice: madv::HUGEPAGE }
    }

    #[test]
    fn the_first_touches_show_an_aligned_part() {
        let part = |touched: &[u64]| mapped(TO).touched(FROM, touched).map(|part| (part.begin, part.begin_to));
        assert_eq!(part(&[ALIGNED]), Some((ALIGNED, ALIGNED_TO)));
        assert_eq!(part(&[FROM, ALIGNED - PAGE]), Some((ALIGNED - PAGE, ALIGNED_TO - PAGE)));
        assert_eq!(part(&[FROM, ALIGNED, FROM + PAGE]), Some((ALIGNED, ALIGNED_TO)));
        for touched in [&[][..], &[FROM], &[FROM, FROM + PAGE], &[ALIGNED - PAGE], &[ALIGNED + 4 * M], &[FROM + PAGE]] {
            assert_eq!(part(touched), None, "{touched:x?}");
        }
    }

    #[test]
    fn a_used_first_page_moves_the_part_to_the_next_aligned_address() {
        let part = |touched: &[u64]| mapped(ALIGNED_TO).touched(FROM, touched).map(|part| part.begin_to);
        assert_eq!(part(&[ALIGNED]), Some(ALIGNED_TO));
        assert_eq!(part(&[FROM, ALIGNED - PAGE]), Some(ALIGNED_TO + 2 * M - PAGE));
    }

    #[test]
    fn advice_shows_an_aligned_part_if_no_call_has_changed_the_mapping() {
        let expected = AlignedPart { recorded: (FROM, FROM + BYTES), to: TO, begin: ALIGNED, begin_to: ALIGNED_TO };
        assert_eq!(mapped(TO).advised(&advice(ALIGNED)), Some(expected));
        assert_eq!(mapped(TO).advised(&advice(FROM)), None);
        assert_eq!(mapped(TO).advised(&advice(ALIGNED + PAGE)), None);
        let mut changed = mapped(TO);
        let call = Call::Munmap { address: FROM + M / 2, bytes: PAGE };
        changed.apply(&Event { run: 0, order: 0, call, result: 0 });
        assert_eq!(changed.advised(&advice(ALIGNED)), None);
    }

    #[test]
    fn takes_only_whole_mappings_with_an_aligned_part() {
        let mut mappings = mapped(TO);
        assert_eq!(mappings.take(FROM, BYTES), None);
        mappings.advised(&advice(ALIGNED));
        assert_eq!(mappings.take(FROM, BYTES - PAGE), None);
        assert_eq!(mappings.take(FROM, BYTES), Some(TO));
        assert_eq!(mappings.take(FROM, BYTES), None);
    }
}
