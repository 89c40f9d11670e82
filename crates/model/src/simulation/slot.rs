//! What is known of a page for one kind of access: where its translation is in the TLBs, and its entry in the tables.
//!
//! Eight bytes suffice while the first level holds it. The rest is stored separately, so that more pages fit in a cache.

use crate::machine::MAX_TLB_LEVEL;
use crate::tlb::Key;
use crate::walk::LeafEntry;

/// Number of kinds of accesses: fetches, loads, stores.
pub const LANES: usize = 3;
/// No TLB of this level holds the page.
pub const NONE: u8 = u8::MAX;
/// The bit of a slot whose page must not be stored to.
pub const READ_ONLY: u32 = 1 << 31;
/// The position of the TLB number in [`Slot::place`], above the set index.
const TLB_SHIFT: u32 = 24;
/// A key that no stored page has.
const UNKNOWN: Key = Key::MAX;

/// The position of a page in the first level.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub key: Key,
    /// Its set among those of all first-level TLBs, the number of the TLB, and [`READ_ONLY`].
    place: u32,
}

impl Slot {
    /// A slot of which nothing is known.
    pub const UNKNOWN: Slot = Slot { key: UNKNOWN, place: 0 };

    pub fn new(key: Key, tlb: u8, front: u32, writable: bool) -> Slot {
        Slot { key, place: front | u32::from(tlb) << TLB_SHIFT | if writable { 0 } else { READ_ONLY } }
    }

    /// Whether the slot is unknown, or not usable for a store; `stores` is [`READ_ONLY`] for a store, otherwise 0.
    #[inline(always)]
    pub fn is_unknown(self, stores: u32) -> bool {
        self.key == UNKNOWN || self.place & stores != 0
    }

    #[inline(always)]
    pub fn front(self) -> u32 {
        self.place & ((1 << TLB_SHIFT) - 1)
    }

    #[inline(always)]
    pub fn tlb(self) -> usize {
        ((self.place & !READ_ONLY) >> TLB_SHIFT) as usize
    }
}

/// The data needed when the first level misses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    pub entry: LeafEntry,
    /// The number of the 4K page.
    pub page: u64,
    pub second_key: Key,
    pub second_index: u16,
    pub second: u8,
    /// log2 of the bytes that are mapped together.
    pub size: u8,
    /// The number of the path of entries above the leaf ([`super::paths::Paths`]).
    pub path: u32,
}

/// Maximum number of levels after the second.
pub const FURTHER_LEVELS: usize = MAX_TLB_LEVEL as usize - 2;

/// The position of a page in a level after the second.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub key: Key,
    pub index: u16,
    pub tlb: u8,
}

impl Default for Stored {
    fn default() -> Stored {
        Stored { key: 0, index: 0, tlb: NONE }
    }
}

/// The slots of all pages, for one kind of access.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    pub first: Vec<Slot>,
    pub rest: Vec<Rest>,
    /// Empty if the machine has at most two levels.
    pub further: Vec<[Stored; FURTHER_LEVELS]>,
}

impl Slots {
    pub fn resize(&mut self, pages: usize) {
        self.first.resize(pages, Slot::UNKNOWN);
        self.rest.resize(pages, Rest::default());
    }

    pub fn set(&mut self, number: u32, first: Slot, rest: Rest) {
        (self.first[number as usize], self.rest[number as usize]) = (first, rest);
    }

    pub fn set_further(&mut self, number: u32, further: [Stored; FURTHER_LEVELS]) {
        if self.further.len() <= number as usize {
            self.further.resize(self.first.len(), [Stored::default(); FURTHER_LEVELS]);
        }
        self.further[number as usize] = further;
    }

    pub fn forget(&mut self, number: usize) {
        self.first[number].key = UNKNOWN;
    }

    pub fn forget_all(&mut self) {
        self.first.iter_mut().for_each(|slot| slot.key = UNKNOWN);
    }
}
