//! Lookups in the TLBs: what one run asks for, and what a block of them has in common.

use trace::Kind;

use super::slot::{LANES, READ_ONLY, Rest, Slot, Slots};
use crate::walk::MOST_WALKS;

/// Runs of a block where many are missed: each has two lookups at most.
pub const BLOCK: usize = MOST_WALKS / 2;

/// One lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    pub slot: Slot,
    pub number: u32,
    /// The kind of access, and [`READ_ONLY`] for a store.
    pub lane: u32,
}

impl Lookup {
    pub fn lane(self) -> usize {
        (self.lane & !READ_ONLY) as usize
    }
}

/// The lookups of a block, and those of them that a level did not answer.
#[derive(Debug)]
pub struct Lookups {
    pub lookups: Vec<Lookup>,
    /// Its first `misses` are what the first level did not answer.
    pub missed: [Lookup; MOST_WALKS],
    pub misses: usize,
    /// What is known of those.
    pub rests: [Rest; MOST_WALKS],
    /// Whether so many were missed lately that it pays to look ahead.
    pub many: bool,
}

impl Default for Lookups {
    fn default() -> Lookups {
        let none = Lookup { slot: Slot::UNKNOWN, number: 0, lane: 0 };
        Lookups {
            lookups: Vec::new(),
            missed: [none; MOST_WALKS],
            misses: 0,
            rests: [Rest::default(); MOST_WALKS],
            many: false,
        }
    }
}

impl Lookups {
    #[inline(always)]
    pub fn push(&mut self, slots: &[Slots; LANES], number: u32, lane: u32) {
        let slot = slots[(lane & !READ_ONLY) as usize].first[number as usize];
        self.lookups.push(Lookup { slot, number, lane });
    }
}

/// [`READ_ONLY`] for a run with a store, and otherwise nothing.
#[inline(always)]
pub fn stores(kind: u8) -> u32 {
    let store = Kind::STORE.bits();
    u32::from(kind & store) << (READ_ONLY.trailing_zeros() - store.trailing_zeros())
}

/// Whether a run has loads before its first store.
pub fn loads_first(kind: u8) -> bool {
    let loads = kind & Kind::LOAD.bits() != 0 && kind & Kind::STORE_FIRST.bits() == 0;
    loads && kind & Kind::STORE.bits() != 0
}
