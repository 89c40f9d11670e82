//! TLB lookups: one lookup of a run, and the state of a block of them.

use trace::Kind;

use super::slot::{LANES, READ_ONLY, Rest, Slot, Slots};
use crate::walk::MAX_WALKS;

/// Block size, in runs, while many lookups miss: each run has at most two lookups.
pub const BLOCK: usize = MAX_WALKS / 2;

/// One TLB lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    pub slot: Slot,
    pub number: u32,
    /// The kind of access, with [`READ_ONLY`] set for a store.
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
    /// The first `misses` elements are the lookups that missed in the first level.
    pub missed: [Lookup; MAX_WALKS],
    pub misses: usize,
    /// The remaining data of those lookups.
    pub rests: [Rest; MAX_WALKS],
    /// Whether lookups missed so often recently that it pays to look ahead.
    pub many: bool,
}

impl Default for Lookups {
    fn default() -> Lookups {
        let none = Lookup { slot: Slot::UNKNOWN, number: 0, lane: 0 };
        Lookups {
            lookups: Vec::new(),
            missed: [none; MAX_WALKS],
            misses: 0,
            rests: [Rest::default(); MAX_WALKS],
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
