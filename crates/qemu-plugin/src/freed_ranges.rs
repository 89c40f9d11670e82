// SPDX-License-Identifier: GPL-2.0-or-later
//! Address ranges whose pages system calls have freed: the next touch of such a page is a first touch again.

use std::collections::VecDeque;
use std::ops::Range;

use trace::{Call, PAGE_SHIFT};

use crate::touched::Touched;

/// How many ranges are kept for threads that have not processed them; a thread that is further behind forgets all its pages.
const MAX_RANGES: usize = 1 << 10;

/// All addresses.
const EVERYTHING: Range<u64> = 0..u64::MAX;

/// Removed ranges, in the order of their removal.
#[derive(Debug, Default)]
pub struct FreedRanges {
    ranges: VecDeque<Range<u64>>,
    /// Number of ranges before the first that is kept.
    before: u64,
}

impl FreedRanges {
    pub fn add(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) {
        self.ranges.extend(ranges);
        while self.ranges.len() > MAX_RANGES {
            self.ranges.pop_front();
            self.before += 1;
        }
    }

    /// Makes `touched` forget all ranges but the first `processed`. Returns the number of ranges so far.
    pub fn apply_to(&self, processed: u64, touched: &mut Touched) -> u64 {
        match processed.checked_sub(self.before) {
            None => touched.forget(&EVERYTHING),
            Some(processed) => self.ranges.iter().skip(processed as usize).for_each(|range| touched.forget(range)),
        }
        self.before + self.ranges.len() as u64
    }
}

/// The ranges that a completed call frees. `heap_end` is the end of the heap before it.
pub fn freed_by(call: &Call, result: i64, heap_end: u64) -> Vec<Range<u64>> {
    // Linux returns errors as -4095 to -1.
    if (-4095..0).contains(&result) {
        return Vec::new();
    }
    let range = |begin: u64, bytes: u64| begin..begin.saturating_add(bytes.next_multiple_of(1 << PAGE_SHIFT));
    let drops = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE, libc::MADV_DONTNEED_LOCKED];
    match *call {
        Call::Mmap { bytes, .. } => vec![range(result as u64, bytes)],
        Call::Munmap { address, bytes } => vec![range(address, bytes)],
        Call::Mremap { address, old_bytes, new_bytes, .. } => {
            vec![range(address, old_bytes), range(result as u64, new_bytes)]
        }
        Call::Madvise { address, bytes, advice } if drops.iter().any(|drop| *drop as u64 == advice) => {
            vec![range(address, bytes)]
        }
        Call::Brk { .. } if (result as u64) < heap_end => vec![range(result as u64, heap_end - result as u64)],
        // After fork both processes share the pages write-protected, so every first write faults again.
        Call::Clone { flags } if flags & libc::CLONE_VM as u64 == 0 => vec![EVERYTHING],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Kind;

    #[test]
    fn a_thread_forgets_what_it_has_not_heard_of() {
        let (mut freed, mut touched) = (FreedRanges::default(), Touched::new());
        let touch = |touched: &mut Touched| (0..8).for_each(|page| touched.insert(page << PAGE_SHIFT, Kind::LOAD));
        let known = |touched: &mut Touched| (0..8).filter(|page| touched.has(page << PAGE_SHIFT, Kind::LOAD)).count();
        touch(&mut touched);
        freed.add([0..0x1000, 0x3000..0x5000]);
        let processed = freed.apply_to(0, &mut touched);
        assert_eq!((processed, known(&mut touched)), (2, 5));
        touch(&mut touched);
        assert_eq!((freed.apply_to(processed, &mut touched), known(&mut touched)), (2, 8));
        // Adds more ranges than are kept.
        freed.add((0..=MAX_RANGES as u64).map(|_| 0x1000..0x2000));
        assert_eq!((freed.apply_to(processed, &mut touched), known(&mut touched)), (3 + MAX_RANGES as u64, 0));
    }

    #[test]
    fn failed_calls_and_harmless_advice_free_nothing() {
        let taken = |call: &Call, result, heap_end| freed_by(call, result, heap_end).pop();
        let advise = |advice: i32| Call::Madvise { address: 0x1000, bytes: 1, advice: advice as u64 };
        assert_eq!(taken(&advise(libc::MADV_DONTNEED), 0, 0), Some(0x1000..0x2000));
        assert_eq!(taken(&advise(libc::MADV_HUGEPAGE), 0, 0), None);
        assert_eq!(taken(&advise(libc::MADV_DONTNEED), -22, 0), None);
        let brk = Call::Brk { address: 0 };
        assert_eq!(taken(&brk, 0x1000, 0x3000), Some(0x1000..0x3000));
        assert_eq!(taken(&brk, 0x5000, 0x3000), None);
        assert_eq!(taken(&Call::Clone { flags: 17 }, 5, 0), Some(EVERYTHING));
        assert_eq!(taken(&Call::Clone { flags: libc::CLONE_VM as u64 }, 5, 0), None);
    }
}
