//! Which addresses are taken, and the gaps between them, from which Linux takes the highest that is large enough.

use std::collections::BTreeMap;

use ::policy::call::{map, prot};

use super::linux::{ARENA_BYTES, EMULATED, HUGE, MMAP_BASE, PAGE, VDSO_BYTES};

/// What a place is congruent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// A power of two.
    pub bytes: u64,
    /// What the place is congruent to, modulo these bytes.
    pub offset: u64,
}

impl Alignment {
    /// That of a new mapping, which was recorded at an address.
    pub fn of_mapping(bytes: u64, protection: u64, flags: u64, offset: u64, recorded: u64) -> Option<Alignment> {
        match flags & map::ANONYMOUS != 0 {
            true if protection == prot::NONE && bytes >= 2 * ARENA_BYTES => {
                Some(Alignment { bytes: ARENA_BYTES, offset: recorded })
            }
            true => Alignment::of_memory(bytes),
            false => (bytes >= HUGE).then_some(Alignment { bytes: HUGE, offset }),
        }
    }

    /// That of anonymous memory: whole huge pages are aligned.
    pub fn of_memory(bytes: u64) -> Option<Alignment> {
        (bytes >= HUGE && bytes.is_multiple_of(HUGE)).then_some(Alignment { bytes: HUGE, offset: 0 })
    }
}

/// Ranges of addresses that are taken: where each begins and ends; and the end of the gaps that are used.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken(BTreeMap<u64, u64>, End);

/// What the highest gap ends at.
#[derive(Clone, Copy, Debug)]
struct End(u64);

impl Default for End {
    fn default() -> End {
        End(MMAP_BASE - VDSO_BYTES)
    }
}

impl Taken {
    /// Nothing, below the vdso behind which `mmap_base` is.
    pub fn below(mmap_base: u64) -> Taken {
        Taken(BTreeMap::new(), End(mmap_base - VDSO_BYTES))
    }

    /// Where the last range ends that begins below an address.
    pub fn last_end_below(&self, address: u64) -> Option<u64> {
        self.0.range(..address).next_back().map(|(_, end)| *end)
    }

    pub fn is_free(&self, begin: u64, end: u64) -> bool {
        self.last_end_below(end).is_none_or(|taken| taken <= begin)
    }

    pub fn take(&mut self, begin: u64, end: u64) {
        self.free(begin, end);
        self.0.insert(begin, end);
    }

    pub fn free(&mut self, begin: u64, end: u64) {
        let first = self.0.range(..=begin).next_back().map_or(begin, |(at, _)| *at);
        let touched: Vec<(u64, u64)> = self.0.range(first..end).map(|(at, end)| (*at, *end)).collect();
        for (at, until) in touched.into_iter().filter(|(_, until)| *until > begin) {
            self.0.remove(&at);
            if at < begin {
                self.0.insert(at, begin);
            }
            if until > end {
                self.0.insert(end, until);
            }
        }
    }

    /// Takes the highest gap for so many bytes, aligned where that is asked for.
    pub fn place(&mut self, bytes: u64, aligned: Option<Alignment>) -> u64 {
        let to = match aligned.and_then(|aligned| Some((aligned, self.gap(bytes.checked_add(aligned.bytes)?)?.0))) {
            Some((Alignment { bytes, offset }, begin)) => match offset.wrapping_sub(begin) & (bytes - 1) {
                0 => begin + bytes,
                rest => begin + rest,
            },
            // No program has used up all addresses.
            None => self.gap(bytes).map_or(EMULATED, |(begin, _)| begin),
        };
        self.0.insert(to, to + bytes);
        to
    }

    /// The highest place for whole pages of a pool (`hugetlb_get_unmapped_area`).
    pub fn highest(&self, bytes: u64, page_bytes: u64) -> u64 {
        let gap = bytes.checked_add(page_bytes - PAGE).and_then(|bytes| self.gap(bytes));
        // No program has used up all addresses.
        gap.map_or(EMULATED, |(_, end)| (end - bytes) / page_bytes * page_bytes)
    }

    /// The upper end of the highest gap: where so many bytes begin and end there.
    pub fn gap(&self, bytes: u64) -> Option<(u64, u64)> {
        let End(mut end) = self.1;
        for (at, until) in self.0.range(..end).rev() {
            if *until < end && end - until >= bytes {
                return Some((end - bytes, end));
            }
            end = end.min(*at);
        }
        Some((end.checked_sub(bytes)?, end))
    }
}
