//! Pages that processes ask for and do not map: those in swap, and those of shared memory.
//!
//! What was reclaimed has a slot (`swp_entry_t`), and every process that had mapped the page has the slot in its place. Who
//! touches it first reads it in; the others find it in memory (the swap cache) and share it until one of them writes.

use std::collections::BTreeMap;

use crate::address::Pa;

/// By what a process asks for a page that it does not map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKey {
    /// Its slot in swap.
    Slot(u64),
    /// The object of shared memory that it belongs to, and where in it.
    Shared(u64, u64),
}

/// Where a page is.
#[derive(Clone, Copy, Debug, Default)]
struct Cached {
    /// Memory that holds it, or held it: the folio there has the key if it still does. `None` in swap.
    pa: Option<Pa>,
    /// Places of processes that have its slot (`swap_map`).
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
    /// The number of a new object of shared memory.
    pub(super) fn object(&mut self) -> u64 {
        self.next_object += 1;
        self.next_object
    }

    /// The first of so many new slots.
    pub(super) fn slots(&mut self, count: u64) -> u64 {
        self.next_slot += count;
        self.next_slot - count
    }

    /// One more place has a slot.
    pub(super) fn add_user(&mut self, slot: u64) {
        self.pages.entry(CacheKey::Slot(slot)).or_default().users += 1;
    }

    /// One place less has a slot, which is free when none has.
    pub(super) fn drop_user(&mut self, slot: u64) {
        if let Some(page) = self.pages.get_mut(&CacheKey::Slot(slot)) {
            page.users -= 1;
            if page.users == 0 {
                self.pages.remove(&CacheKey::Slot(slot));
            }
        }
    }

    /// Whether anybody may still ask for a page by this key.
    pub(super) fn contains(&self, key: CacheKey) -> bool {
        self.pages.contains_key(&key)
    }

    /// Memory that holds a page, or held it.
    pub(super) fn pa(&self, key: CacheKey) -> Option<Pa> {
        self.pages.get(&key)?.pa
    }

    /// Whether a page is in swap and nowhere else.
    pub(super) fn is_in_swap(&self, key: CacheKey) -> bool {
        self.pages.get(&key).is_some_and(|page| page.pa.is_none())
    }

    /// The page is in memory at `pa`, or in swap.
    pub(super) fn put(&mut self, key: CacheKey, pa: Option<Pa>) {
        self.pages.entry(key).or_default().pa = pa;
    }
}
