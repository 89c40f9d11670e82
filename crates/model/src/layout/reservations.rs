//! Mappings that a program trims to an aligned part by unmapping both ends: arenas of glibc and jemalloc, heaps of V8 and Java. How
//! much it unmaps depends on the mapping's address. On Linux the program would have unmapped different ranges than in the
//! recording, and kept the part that is aligned at Linux's address.

use std::collections::BTreeMap;

use ::policy::call::{map, prot};
use trace::{Call, Event};

use super::linux::{PAGE, pages};

/// The minimum alignment in bytes. No simulated page or folio size depends on a smaller one, and a program may unmap a small end
/// for another reason.
const MIN_BYTES: u64 = 64 << 10;

/// A mapping that the program has not used yet, as far as its calls show.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    /// The recorded end of the mapping.
    end: u64,
    /// The recorded range that is still mapped.
    kept: (u64, u64),
    /// Its address in Linux's layout.
    to: u64,
    /// The address of the kept range in Linux's layout.
    kept_to: u64,
    /// Whether the program can use the mapping without another call. If it can, the mapping counts as trimmed only if the next
    /// calls trim it.
    is_open: bool,
}

/// The result of trimming an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trimmed {
    /// The whole mapping, as recorded.
    pub recorded: (u64, u64),
    /// The kept part: its recorded address, its bytes, and its address in Linux's layout.
    pub kept: (u64, u64, u64),
    /// The ranges to unmap in Linux's layout, as address and bytes.
    pub unmapped: Vec<(u64, u64)>,
}

/// Mappings that the program may trim, by recorded address.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations(BTreeMap<u64, Reservation>);

impl Reservations {
    /// Notes a new mapping at `to`, which was recorded at the address `recorded`.
    pub fn note(&mut self, call: &Call, recorded: u64, to: u64) {
        if let Call::Mmap { bytes, protection, flags, .. } = *call
            && flags & map::ANONYMOUS != 0
            && flags & map::TYPE == map::PRIVATE
            && !map::populates(flags)
        {
            let end = recorded.saturating_add(pages(bytes));
            let is_open = protection != prot::NONE;
            self.0.insert(recorded, Reservation { end, kept: (recorded, end), to, kept_to: to, is_open });
        }
    }

    /// Processes a call. A mapping that the program starts to use is no longer a reservation.
    pub fn apply(&mut self, event: &Event) {
        let used = match event.call {
            Call::Munmap { .. } => return,
            Call::Mprotect { address, bytes, .. } => (address, bytes),
            Call::Mremap { address, old_bytes, .. } => (address, old_bytes),
            Call::Mmap { bytes, .. } => (event.result as u64, bytes),
            _ => (0, 0),
        };
        let end = used.0.saturating_add(pages(used.1));
        self.0.retain(|begin, reservation| !reservation.is_open && (reservation.end <= used.0 || end <= *begin));
    }

    /// Handles the unmapping of a recorded range. Returns `None` unless it trims a reservation to an aligned part.
    pub fn trim(&mut self, address: u64, bytes: u64) -> Option<Trimmed> {
        let (begin, reservation) = self.0.range(..=address).next_back().map(|(begin, found)| (*begin, *found))?;
        let trimmed = reservation.without(begin, (address, address.saturating_add(bytes)));
        match &trimmed {
            Some((left, _)) => self.0.insert(begin, *left),
            None if address < reservation.end => self.0.remove(&begin),
            None => None,
        };
        trimmed.map(|(_, trimmed)| trimmed)
    }
}

impl Reservation {
    /// Trims a recorded range from an end of this reservation, whose recorded address is `begin`.
    fn without(self, begin: u64, (from, to): (u64, u64)) -> Option<(Reservation, Trimmed)> {
        let kept = match self.kept {
            (first, end) if from == first && first == begin && to < end => (to, end),
            (first, end) if to == end && end == self.end && first < from => (first, from),
            _ => return None,
        };
        // Each unmapped end is shorter than the alignment. Together they are as long as the alignment, or a page shorter.
        let (head, tail) = (kept.0 - begin, self.end - kept.1);
        let alignment = (head + tail).max(head + PAGE).next_power_of_two();
        // No program reserves more for the alignment than for the aligned part.
        let is_for_alignment = head <= (self.end - begin) / 2 && alignment >= MIN_BYTES;
        if !is_for_alignment || !kept.0.is_multiple_of(alignment) {
            return None;
        }
        let kept_to = self.to.next_multiple_of(alignment);
        let all_end = self.to + (self.end - begin);
        let bytes = (kept.1 - kept.0).min(all_end.checked_sub(kept_to)?);
        // Whatever is behind the kept part is unmapped with the tail.
        let rest = if tail > 0 { (kept_to + bytes, all_end) } else { (all_end, all_end) };
        let unmapped = [(self.kept_to, kept_to), rest].into_iter().filter(|(from, to)| from < to);
        let unmapped = unmapped.map(|(from, to)| (from, to - from)).collect();
        let trimmed = Trimmed { recorded: (begin, self.end), kept: (kept.0, bytes, kept_to), unmapped };
        Some((Reservation { kept, kept_to, ..self }, trimmed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    /// The recorded address of a mapping, and its address in Linux's layout.
    const FROM: u64 = 0x40_0017_7000;
    const TO: u64 = 0x7fff_e030_1000;

    fn reserved(bytes: u64, protection: u64) -> Reservations {
        let mut reservations = Reservations::default();
        let call = Call::Mmap { address: 0, bytes, protection, flags: 0x4022, file: -1, offset: 0, file_system: None };
        reservations.note(&call, FROM, TO);
        reservations
    }

    #[test]
    fn keeps_the_part_that_is_aligned_on_linux() {
        // 32M for an aligned part of 16M: the program unmaps the head, then the tail.
        let mut reservations = reserved(32 * M, 0);
        let aligned = FROM.next_multiple_of(16 * M);
        let first = reservations.trim(FROM, aligned - FROM).unwrap();
        assert_eq!((first.recorded, first.kept.0), ((FROM, FROM + 32 * M), aligned));
        let last = reservations.trim(aligned + 16 * M, FROM + 16 * M - aligned).unwrap();
        let to = TO.next_multiple_of(16 * M);
        assert_eq!(last.kept, (aligned, 16 * M, to));
        let mut unmapped: Vec<(u64, u64)> = first.unmapped.iter().chain(&last.unmapped).copied().collect();
        unmapped.sort_unstable();
        assert_eq!(unmapped.iter().map(|(_, bytes)| bytes).sum::<u64>(), 16 * M);
        assert_eq!((unmapped[0].0, unmapped[unmapped.len() - 1].0), (TO, to + 16 * M));
    }

    #[test]
    fn trims_a_head_that_the_recording_did_not_need() {
        // The recorded address was already aligned; the address in Linux's layout is not.
        let mut reservations = Reservations::default();
        let call = Call::Mmap {
            address: 0,
            bytes: 3 * M,
            protection: 0,
            flags: 0x4022,
            file: -1,
            offset: 0,
            file_system: None,
        };
        reservations.note(&call, 0x40_0020_0000, TO);
        let trimmed = reservations.trim(0x40_0040_0000, M).unwrap();
        let to = TO.next_multiple_of(M);
        assert_eq!(trimmed.kept, (0x40_0020_0000, 2 * M, to));
        assert_eq!(trimmed.unmapped, [(TO, to - TO), (to + 2 * M, TO + M - to)]);
    }

    #[test]
    fn ignores_unmapping_that_leaves_no_aligned_part() {
        assert_eq!(reserved(32 * M, 0).trim(FROM, 4096), None);
        assert_eq!(reserved(32 * M, 0).trim(FROM + 4096, 8192), None);
        assert_eq!(reserved(32 * M, 0).trim(FROM, 32 * M), None);
        assert_eq!(Reservations::default().trim(FROM, M), None);
    }

    #[test]
    fn ignores_mappings_in_use() {
        let head = FROM.next_multiple_of(16 * M) - FROM;
        let event = |call| Event { run: 0, order: 0, call, result: 0 };
        let other = event(Call::Madvise { address: 0, bytes: 0, advice: 10 });
        let protect = event(Call::Mprotect { address: FROM + M, bytes: M, protection: 3 });
        for (protection, call, is_trimmed) in [(0, &other, true), (0, &protect, false), (3, &other, false)] {
            let mut reservations = reserved(32 * M, protection);
            reservations.apply(call);
            assert_eq!(reservations.trim(FROM, head).is_some(), is_trimmed, "{protection} {call:?}");
        }
    }
}
