// SPDX-License-Identifier: GPL-2.0-or-later
//! Accesses while they are collected, where every address is kept.
//!
//! Callbacks write a word for an access. Runs are made of the words when the buffer is full.

use trace::{Access, Kind, PAGE_SHIFT, Run};

use crate::streams::Transfer;

/// Words of a buffer: little enough to stay in the second-level cache of a core.
const WORDS: usize = 1 << 14;

/// A word: the address, and above it log2 of the size, and what is done. Addresses of programs have at most 57 bits.
pub const ADDRESS: u64 = (1 << SIZE_SHIFT) - 1;
const SIZE_SHIFT: u32 = 57;
/// The size is no power of two, or above 64 bytes.
const STRANGE_SIZE: u8 = 7;
/// Most bytes of an access whose size is known.
pub const MOST_BYTES: u64 = 64;
const STORE_SHIFT: u32 = 60;
const FETCH: u64 = 1 << 61;
/// A load of an instruction that stores to the same place.
const MODIFY: u64 = 1 << 62;

/// What an access is, as far as it does not depend on the address: the bits of its word above the address. Not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(u8);

const MARKED_STORE: u8 = 1 << (STORE_SHIFT - SIZE_SHIFT);
const MARKED_FETCH: u8 = (FETCH >> SIZE_SHIFT) as u8;
const MARKED_MODIFY: u8 = (MODIFY >> SIZE_SHIFT) as u8;
const MARKED: u8 = 1 << 7;

impl Marks {
    /// Those of instruction fetches of `bytes` bytes.
    pub const fn fetch(bytes: u64) -> Marks {
        Marks(MARKED | MARKED_FETCH | size(bytes))
    }

    /// Those of loads or stores of `1 << size_shift` bytes.
    pub const fn new(size_shift: u32, store: bool) -> Marks {
        let size = if size_shift < 7 { size_shift as u8 } else { STRANGE_SIZE };
        Marks(MARKED | size | if store { MARKED_STORE } else { 0 })
    }

    /// As a byte, which is not zero.
    pub const fn to_byte(self) -> u8 {
        self.0
    }

    /// From that byte; none from zero.
    #[inline(always)]
    pub const fn from_byte(byte: u8) -> Option<Marks> {
        if byte == 0 { None } else { Some(Marks(byte)) }
    }

    /// Whether they are of a store.
    #[inline(always)]
    pub const fn is_store(self) -> bool {
        self.0 & MARKED_STORE != 0
    }

    /// Those of the same access by an instruction that stores to that place.
    #[inline(always)]
    pub const fn modifying(self) -> Marks {
        if self.is_store() { self } else { Marks(self.0 | MARKED_MODIFY) }
    }

    /// What the access does.
    #[inline(always)]
    pub const fn transfer(self) -> Transfer {
        match (self.is_store(), self.0 & MARKED_MODIFY != 0) {
            (true, _) => Transfer::Store,
            (false, true) => Transfer::Modify,
            (false, false) => Transfer::Load,
        }
    }

    /// Bytes of an access; those of a strange size count as one.
    pub const fn bytes(self) -> u64 {
        match self.0 & 7 {
            STRANGE_SIZE => 1,
            size => 1 << size,
        }
    }

    /// Those of the part of an access that lies in the page of `address`: the rest may be anywhere in memory.
    pub const fn within_page(self, address: u64) -> Marks {
        if (address & 0xfff) + self.bytes() > 0x1000 { Marks(self.0 | STRANGE_SIZE) } else { self }
    }

    const fn with_bytes(self, bytes: u64) -> Marks {
        Marks(self.0 & !7 | size(bytes))
    }

    const fn of(self, address: u64) -> u64 {
        address & ADDRESS | ((self.0 & !MARKED) as u64) << SIZE_SHIFT
    }
}

const fn size(bytes: u64) -> u8 {
    if bytes.is_power_of_two() && bytes <= MOST_BYTES { bytes.trailing_zeros() as u8 } else { STRANGE_SIZE }
}

/// The accesses of a thread that no chunk has yet.
#[derive(Debug, Default)]
pub struct Words(Vec<u64>);

impl Words {
    /// Most words that [`Words::empty`] makes runs of.
    pub const MOST: usize = WORDS;

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the buffer must be emptied before the next access, which can have two words.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.len() + 2 > WORDS
    }

    /// An access of `bytes` bytes; one that crosses the end of a page is one to each.
    #[inline]
    pub fn push(&mut self, address: u64, bytes: u64, marks: Marks) {
        let in_page = (1 << PAGE_SHIFT) - (address & 0xfff);
        if bytes <= in_page {
            self.0.push(marks.of(address));
        } else {
            self.0.push(marks.with_bytes(in_page).of(address));
            self.0.push(marks.with_bytes(bytes - in_page).of(address.wrapping_add(in_page)));
        }
    }

    /// Makes runs, which stand one after the other, and hands them on with their accesses.
    pub fn empty(&mut self, mut to: impl FnMut(Run, &[Access])) {
        let place = |word: &u64| (word & FETCH, (word & ADDRESS) >> PAGE_SHIFT);
        let mut accesses = Vec::new();
        for run in self.0.chunk_by(|word, next| place(word) == place(next)) {
            accesses.clear();
            accesses.extend(run.iter().map(access));
            let kind = run.iter().map(kind).reduce(Kind::then).unwrap_or_default();
            to(Run { page: (run[0] & ADDRESS) >> PAGE_SHIFT, kind, accesses: run.len() as u32 }, &accesses);
        }
        self.0.clear();
    }
}

fn kind(word: &u64) -> Kind {
    match (word & FETCH != 0, word >> STORE_SHIFT & 1, word & MODIFY != 0) {
        (true, ..) => Kind::FETCH,
        (false, 0, false) => Kind::LOAD,
        (false, 0, true) => Kind::MODIFY,
        (false, ..) => Kind::STORE,
    }
}

fn access(word: &u64) -> Access {
    let size = (word >> SIZE_SHIFT) as u8 & 7;
    let bytes = if size == STRANGE_SIZE { 0 } else { 1 << size };
    Access::new((word & 0xfff) as u16, bytes, word >> STORE_SHIFT & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_as_a_byte() {
        for marks in [Marks::new(3, false), Marks::new(3, true), Marks::new(0, false), Marks::new(12, true)] {
            assert_eq!(Marks::from_byte(marks.to_byte()), Some(marks));
        }
    }
}
