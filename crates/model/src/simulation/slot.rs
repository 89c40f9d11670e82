//! Where the translation of a page is, for one kind of access: its places in the TLBs, and its page-table entry.
//!
//! A first-level lookup needs only the eight bytes of [`Slot`]. [`MissData`] is stored separately, so that more slots fit in the
//! host's caches.

use crate::machine::MAX_TLB_LEVEL;
use crate::tlb::Key;
use crate::walk::LeafEntry;

/// Number of lanes. Each kind of access has a lane: 0 for fetches, 1 for loads, 2 for stores.
pub const LANES: usize = 3;
/// Used in place of a TLB number if no TLB of this level holds the page.
pub const NONE: u8 = u8::MAX;
/// Set in a slot if the page must not be stored to, and in the lane of a lookup for a store.
pub const READ_ONLY: u32 = 1 << 31;
/// The position of the TLB number in `Slot::place`, above the set index.
const TLB_SHIFT: u32 = 24;
/// A key that no stored page has.
const UNKNOWN: Key = Key::MAX;

/// The place of a page in the first level.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub key: Key,
    /// The index of its set among the sets of all first-level TLBs, the number of its TLB, and [`READ_ONLY`].
    place: u32,
}

impl Slot {
    /// A slot that was not set yet.
    pub const UNKNOWN: Slot = Slot { key: UNKNOWN, place: 0 };

    pub fn new(key: Key, tlb: u8, set: u32, writable: bool) -> Slot {
        Slot { key, place: set | u32::from(tlb) << TLB_SHIFT | if writable { 0 } else { READ_ONLY } }
    }

    /// Whether the slot is unknown, or cannot be used for a store. `stores` is [`READ_ONLY`] for a store, otherwise 0.
    #[inline(always)]
    pub fn is_unknown(self, stores: u32) -> bool {
        self.key == UNKNOWN || self.place & stores != 0
    }

    #[inline(always)]
    pub fn set(self) -> u32 {
        self.place & ((1 << TLB_SHIFT) - 1)
    }

    #[inline(always)]
    pub fn tlb(self) -> usize {
        ((self.place & !READ_ONLY) >> TLB_SHIFT) as usize
    }
}

/// The data needed when the first level misses.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissData {
    pub entry: LeafEntry,
    /// The number of the 4K page.
    pub page: u64,
    pub second_key: Key,
    pub second_index: u16,
    pub second: u8,
    /// log2 of the bytes that are mapped together.
    pub size: u8,
    /// The number of the path to the leaf ([`super::paths::Paths`]).
    pub path: u32,
}

/// Maximum number of levels after the second.
pub const FURTHER_LEVELS: usize = MAX_TLB_LEVEL as usize - 2;

/// The place of a page in a level after the second.
#[derive(Clone, Copy, Debug)]
pub struct FurtherSlot {
    pub key: Key,
    pub index: u16,
    pub tlb: u8,
}

impl Default for FurtherSlot {
    fn default() -> FurtherSlot {
        FurtherSlot { key: 0, index: 0, tlb: NONE }
    }
}

/// The slots of all pages, for one kind of access.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    pub first: Vec<Slot>,
    pub miss_data: Vec<MissData>,
    /// Empty if the machine has at most two levels.
    pub further: Vec<[FurtherSlot; FURTHER_LEVELS]>,
}

impl Slots {
    pub fn resize(&mut self, pages: usize) {
        self.first.resize(pages, Slot::UNKNOWN);
        self.miss_data.resize(pages, MissData::default());
    }

    pub fn set(&mut self, number: u32, first: Slot, miss_data: MissData) {
        (self.first[number as usize], self.miss_data[number as usize]) = (first, miss_data);
    }

    pub fn set_further(&mut self, number: u32, further: [FurtherSlot; FURTHER_LEVELS]) {
        if self.further.len() <= number as usize {
            self.further.resize(self.first.len(), [FurtherSlot::default(); FURTHER_LEVELS]);
        }
        self.further[number as usize] = further;
    }

    pub fn reset(&mut self, number: usize) {
        self.first[number].key = UNKNOWN;
    }

    pub fn reset_all(&mut self) {
        self.first.iter_mut().for_each(|slot| slot.key = UNKNOWN);
    }
}
