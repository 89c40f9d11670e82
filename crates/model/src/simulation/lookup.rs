//! One TLB lookup ([`Lookup`]), and the lookups of a block of runs ([`Lookups`]).

use trace::Kind;

use super::slot::{LANES, MissData, READ_ONLY, Slot, Slots};
use crate::walk::MAX_WALKS;

/// Number of runs in a block while misses are frequent: each run has at most two lookups.
pub const BLOCK: usize = MAX_WALKS / 2;

/// One TLB lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    pub slot: Slot,
    /// The number of the page.
    pub number: u32,
    /// The lane, with [`READ_ONLY`] set for a store.
    pub lane: u32,
}

impl Lookup {
    pub fn lane(self) -> usize {
        (self.lane & !READ_ONLY) as usize
    }
}

/// The lookups of a block, and those that missed in a level.
#[derive(Debug)]
pub struct Lookups {
    pub lookups: Vec<Lookup>,
    /// The lookups that missed in the first level: the first `misses` elements.
    pub missed: [Lookup; MAX_WALKS],
    pub misses: usize,
    /// The data of these lookups.
    pub miss_data: [MissData; MAX_WALKS],
    /// Whether misses were frequent in the last block, so that large blocks are faster.
    pub has_frequent_misses: bool,
}

impl Default for Lookups {
    fn default() -> Lookups {
        let none = Lookup { slot: Slot::UNKNOWN, number: 0, lane: 0 };
        Lookups {
            lookups: Vec::new(),
            missed: [none; MAX_WALKS],
            misses: 0,
            miss_data: [MissData::default(); MAX_WALKS],
            has_frequent_misses: false,
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

/// [`READ_ONLY`] for a run with a store, otherwise 0.
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
