//! [`SwapCache`]: pages that processes reference but may not map, which are pages in swap and pages of shared memory.
//!
//! A reclaimed page has a slot (`swp_entry_t`), which replaces the page in every process that had mapped it. The first
//! process that touches the page reads it in. The others find it in memory (the swap cache), and all share it until one of
//! them writes.

use std::collections::BTreeMap;

use crate::address::Pa;

/// The key by which a process references a page that it does not map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKey {
    /// The page's slot in swap.
    Slot(u64),
    /// The shared memory object that contains the page, and the offset of the page in it.
    Shared(u64, u64),
}

/// The location of a page that has a key.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    /// Its address in memory, valid only if the folio there still has the key. `None` if it is in swap.
    pa: Option<Pa>,
    /// The number of references to its slot (`swap_map`).
    users: u64,
}

/// All pages that have keys.
#[derive(Clone, Debug, Default)]
pub(super) struct SwapCache {
    pages: BTreeMap<CacheKey, Cached>,
    next_slot: u64,
    next_object: u64,
}

impl SwapCache {
    /// The number of a new shared memory object.
    pub(super) fn new_object(&mut self) -> u64 {
        self.next_object += 1;
        self.next_object
    }

    /// Allocates `count` consecutive slots and returns the first.
    pub(super) fn allocate_slots(&mut self, count: u64) -> u64 {
        self.next_slot += count;
        self.next_slot - count
    }

    /// Adds a reference to a slot.
    pub(super) fn add_user(&mut self, slot: u64) {
        self.pages.entry(CacheKey::Slot(slot)).or_default().users += 1;
    }

    /// Drops a reference to a slot, which is freed with the last reference.
    pub(super) fn drop_user(&mut self, slot: u64) {
        if let Some(page) = self.pages.get_mut(&CacheKey::Slot(slot)) {
            page.users -= 1;
            if page.users == 0 {
                self.pages.remove(&CacheKey::Slot(slot));
            }
        }
    }

    /// Whether this key still references a page.
    pub(super) fn contains(&self, key: CacheKey) -> bool {
        self.pages.contains_key(&key)
    }

    /// The last known address of a page in memory; the folio there may no longer be this page.
    pub(super) fn pa(&self, key: CacheKey) -> Option<Pa> {
        self.pages.get(&key)?.pa
    }

    /// Removes the pages of an object, and returns their keys and last known addresses in memory.
    pub(super) fn take_object(&mut self, object: u64) -> Vec<(CacheKey, Pa)> {
        let of_object = CacheKey::Shared(object, 0)..=CacheKey::Shared(object, u64::MAX);
        let keys: Vec<CacheKey> = self.pages.range(of_object).map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| Some((key, self.pages.remove(&key)?.pa?))).collect()
    }

    /// Whether a page is only in swap.
    pub(super) fn is_in_swap(&self, key: CacheKey) -> bool {
        self.pages.get(&key).is_some_and(|page| page.pa.is_none())
    }

    /// Sets the location of a page: in memory at `pa`, or in swap.
    pub(super) fn put(&mut self, key: CacheKey, pa: Option<Pa>) {
        self.pages.entry(key).or_default().pa = pa;
    }
}
