//! The keys of TLB entries: a number for each stored page, which is an address and a size.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use trace::PAGE_SHIFT;

use crate::tlb::Key;

/// Assigns keys to stored pages.
#[derive(Default)]
pub(super) struct Keys {
    numbers: HashMap<(u8, u64), Key, Hashing>,
    /// For each key, the first 4K page and the number of 4K pages.
    ranges: Vec<(u64, u64)>,
    /// log2 of each stored size in bytes that has keys.
    shifts: Vec<u8>,
}

impl Keys {
    /// The key of the stored page of `1 << shift` bytes at `va`, which includes the tag of the process.
    pub fn key(&mut self, shift: u8, va: u64) -> Key {
        let ranges = &mut self.ranges;
        if !self.shifts.contains(&shift) {
            self.shifts.push(shift);
        }
        *self.numbers.entry((shift, va >> shift)).or_insert_with(|| {
            let pages = 1u64 << (u32::from(shift) - PAGE_SHIFT);
            ranges.push((va >> shift << (u32::from(shift) - PAGE_SHIFT), pages));
            ranges.len() as Key
        })
    }

    /// Whether a stored page overlaps a range of 4K pages.
    pub fn overlaps(&self, key: Key, first: u64, end: u64) -> bool {
        let (page, pages) = self.ranges[key as usize - 1];
        page < end && page + pages > first
    }

    /// The stored pages that overlap a range of 4K pages: the key of each, and its page number in its size.
    pub fn in_range(&self, first: u64, end: u64) -> impl Iterator<Item = (Key, u64)> {
        self.shifts.iter().flat_map(move |shift| {
            let pages = u32::from(*shift) - PAGE_SHIFT;
            let stored = first >> pages..(end + (1 << pages) - 1) >> pages;
            stored.filter_map(move |page| Some((*self.numbers.get(&(*shift, page))?, page)))
        })
    }
}

/// A deterministic hash of page numbers.
pub(crate) type Hashing = BuildHasherDefault<Multiplicative>;

/// Fibonacci hashing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multiplicative(u64);

impl Hasher for Multiplicative {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The low bits select the bucket, so they must depend on all bits.
        self.0 = mixed ^ mixed >> 32;
    }
}
