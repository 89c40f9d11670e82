//! A walk cache, as processors have one: what walks found, so that the next translation near by need not walk.

use alloc::boxed::Box;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slot::{Slot, Translation};
use crate::address::{InputAddress, OutputAddress};
use crate::arena::Arena;
use crate::format::{Format, Pattern};
use crate::geometry::Geometry;

/// log2 of the regions that are cached, each of what a table of pages spans: 8G of them with 4K pages.
const REGION_BITS: u32 = 12;
const REGIONS: usize = 1 << REGION_BITS;
/// Regions of one of the 64 parts that are flushed one by one.
const PART: usize = REGIONS / u64::BITS as usize;

/// Where a region's number begins in its word.
const NUMBER: u32 = 33;
/// Where the level stands in a word, and what comes below it is its value.
const LEVEL: u32 = 30;
/// The word of a region of which nothing is cached: it has a level that none has.
const NOTHING: u64 = 3 << LEVEL;

/// As many walks are made after a change before anything is cached: to flush costs as much as some tens of walks,
/// and tables that change all the time are not worth caching.
const PATIENCE: u32 = 64;

/// An arena, and what walks in it found. Whoever gets hold of it to change it has the cache flushed first.
#[derive(Debug)]
pub(super) struct CachedArena {
    arena: Arena,
    /// By region, where in the arena its table of pages is, or what memory the leaf maps that is for all of it.
    ///
    /// A word is the region's number less the bits that are its place here; then the level of the leaf; then, with
    /// level 0, a place in the arena, counted in entries; with 1 or 2 an address, counted in regions. Being one word, it
    /// is whole for every thread that reads it.
    cache: Box<WalkCache>,
    /// How to tell pages.
    page: Pattern,
}

/// Apart from the rest, which no translation changes: so compilers need not load that again after each.
#[derive(Debug)]
struct WalkCache {
    regions: [AtomicU64; REGIONS],
    /// A bit for each of 64 parts of the regions in which anything is cached.
    parts: AtomicU64,
    /// Walks since the last change, but no more of them than matter.
    walks: AtomicU32,
}

impl CachedArena {
    pub(super) fn of(format: &impl Format, arena: Arena) -> CachedArena {
        CachedArena { arena, cache: WalkCache::new(), page: format.leaf_pattern(0) }
    }
}

impl WalkCache {
    fn new() -> Box<WalkCache> {
        let regions = [const { AtomicU64::new(NOTHING) }; REGIONS];
        Box::new(WalkCache { regions, parts: AtomicU64::new(0), walks: AtomicU32::new(0) })
    }

    #[cold]
    fn flush(&mut self) {
        *self.walks.get_mut() = 0;
        let mut parts = mem::take(self.parts.get_mut());
        while parts != 0 {
            let first = parts.trailing_zeros() as usize * PART;
            self.regions[first..first + PART].iter_mut().for_each(|word| *word.get_mut() = NOTHING);
            parts &= parts - 1;
        }
    }

    fn set(&self, region: usize, word: u64) {
        let part = 1 << (region / PART);
        if self.parts.load(Ordering::Relaxed) & part == 0 {
            self.parts.fetch_or(part, Ordering::Relaxed);
        }
        self.regions[region].store(word, Ordering::Relaxed);
    }
}

/// The cache of a copy is empty.
impl Clone for CachedArena {
    fn clone(&self) -> CachedArena {
        CachedArena { arena: self.arena.clone(), cache: WalkCache::new(), ..*self }
    }
}

impl Deref for CachedArena {
    type Target = Arena;

    #[inline]
    fn deref(&self) -> &Arena {
        &self.arena
    }
}

impl DerefMut for CachedArena {
    #[inline]
    fn deref_mut(&mut self) -> &mut Arena {
        if *self.cache.walks.get_mut() != 0 {
            self.cache.flush();
        }
        &mut self.arena
    }
}

impl CachedArena {
    /// What the cache has of `va`, if it is mapped there, and the entry of a page. The entries of larger leaves are not
    /// looked at again.
    #[inline(always)]
    pub(super) fn look_up<F: Format>(
        &self,
        InputAddress(va): InputAddress,
        page_shift: u32,
    ) -> Option<(Translation, u64)> {
        let region_shift = 2 * page_shift - 3;
        let word = self.cache.regions[(va >> region_shift) as usize % REGIONS].load(Ordering::Relaxed);
        // Less the number, if it is this one's; otherwise more than anything that is cached.
        let word = word ^ va >> (region_shift + REGION_BITS - NUMBER) & (u64::MAX << NUMBER);
        if word < 1 << LEVEL {
            let place = word + (va >> page_shift & ((1 << (page_shift - 3)) - 1));
            let entry = *self.entries().get(place as usize)?;
            let page = self.page.address(entry, F::ADDRESS_SHIFT)?;
            let pa = OutputAddress(page.0 | va & ((1 << page_shift) - 1));
            return Some((Translation { pa, level: 0 }, entry));
        }
        if word >= NOTHING {
            return None;
        }
        let pa = (word & ((1 << LEVEL) - 1)) << region_shift | va & ((1 << region_shift) - 1);
        Some((Translation { pa: OutputAddress(pa), level: (word >> LEVEL) as u8 }, 0))
    }

    /// Caches what a walk to `va` found: a leaf that translates to `pa`.
    pub(super) fn fill(&self, geometry: Geometry, InputAddress(va): InputAddress, pa: OutputAddress, slot: Slot) {
        let place = match slot.level {
            // A root may be of another length than other tables of pages.
            0 if geometry.levels() > 1 => self.arena.place(slot.pa).checked_sub(geometry.index(0, va)),
            1 | 2 => Some(pa.0 >> geometry.shift(1)),
            _ => None,
        };
        let Some(word) = place.and_then(|place| word(geometry, va, slot.level, place)) else { return };
        let walks = self.cache.walks.load(Ordering::Relaxed);
        if walks < PATIENCE {
            // Of walks at the same time some may not be counted; that costs less than to count them.
            self.cache.walks.store(walks + 1, Ordering::Relaxed);
        } else {
            self.cache.set((va >> geometry.shift(1)) as usize % REGIONS, word);
        }
    }
}

/// The word for the region of `va`, unless what is to be said is too much for it.
fn word(geometry: Geometry, va: u64, level: u8, place: u64) -> Option<u64> {
    let number = va >> geometry.shift(1) >> REGION_BITS;
    let fits = place >> LEVEL == 0 && number >> (64 - NUMBER) == 0;
    fits.then_some(number << NUMBER | u64::from(level) << LEVEL | place)
}
