//! Pages that processes reference but do not map: those in swap, and those of shared memory.
//!
//! A reclaimed page has a slot (`swp_entry_t`), and every process that had mapped the page has the slot in its place.
//! The first process that touches it reads it in. The others find it in memory (the swap cache) and share it until one
//! of them writes.

use std::collections::BTreeMap;

use crate::address::Pa;

/// The key by which a process references a page that it does not map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKey {
    /// The page's slot in swap.
    Slot(u64),
    /// The shared memory object that contains the page, and the offset in it.
    Shared(u64, u64),
}

/// The location of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    /// The memory that holds it, or held it: that is valid if the folio there still has the key. `None` in swap.
    pa: Option<Pa>,
    /// The number of places in processes that have its slot (`swap_map`).
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
    pub(super) fn object(&mut self) -> u64 {
        self.next_object += 1;
        self.next_object
    }

    /// The first of `count` new slots.
    pub(super) fn slots(&mut self, count: u64) -> u64 {
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

    /// Whether a page can still be referenced by this key.
    pub(super) fn contains(&self, key: CacheKey) -> bool {
        self.pages.contains_key(&key)
    }

    /// The memory that holds a page, or held it.
    pub(super) fn pa(&self, key: CacheKey) -> Option<Pa> {
        self.pages.get(&key)?.pa
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
