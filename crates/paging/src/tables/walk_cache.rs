//! A walk cache, as processors have one: it keeps the results of walks, so that the next nearby translation needs no walk.

use alloc::boxed::Box;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::slot::{Slot, Translation};
use crate::address::{InputAddress, OutputAddress};
use crate::arena::Arena;
use crate::format::{Format, Pattern};
use crate::geometry::Geometry;

/// log2 of the number of cached regions. A region is the span of a table of pages, so the cache covers 8G with 4K pages.
const REGION_BITS: u32 = 12;
const REGIONS: usize = 1 << REGION_BITS;
/// Regions in one of the 64 parts that are flushed separately.
const PART: usize = REGIONS / u64::BITS as usize;

/// The lowest bit of a region's number in its word.
const NUMBER: u32 = 33;
/// The lowest bit of the level in a word. The bits below it hold the value.
const LEVEL: u32 = 30;
/// The word of a region that is not cached: its level is one that no leaf has.
const UNCACHED: u64 = 3 << LEVEL;

/// Number of walks after a change before anything is cached. A flush costs as much as some tens of walks, and tables
/// that change all the time are not worth caching.
const MIN_WALKS: u32 = 64;

/// An arena, and the results of walks in it. Access for changing the arena flushes the cache first.
#[derive(Debug)]
pub(super) struct CachedArena {
    arena: Arena,
    /// For each region, the index in the arena of its table of pages, or the memory of the leaf that maps the whole region.
    ///
    /// A word holds the region's number without the bits that are its index here; then the level of the leaf; then, for
    /// level 0, an index in the arena, counted in entries; for levels 1 or 2 an address, counted in regions. Because it
    /// is one word, threads always read it consistently.
    cache: Box<WalkCache>,
    /// The pattern that recognizes pages.
    page: Pattern,
}

/// Separate from the other fields. No translation changes those, so compilers need not reload them after each translation.
#[derive(Debug)]
struct WalkCache {
    regions: [AtomicU64; REGIONS],
    /// One bit for each of 64 parts of the regions, set if anything in the part is cached.
    parts: AtomicU64,
    /// Number of walks since the last change, counted only up to [`MIN_WALKS`].
    walks: AtomicU32,
}

impl CachedArena {
    pub(super) fn of(format: &impl Format, arena: Arena) -> CachedArena {
        CachedArena { arena, cache: WalkCache::new(), page: format.leaf_pattern(0) }
    }
}

impl WalkCache {
    fn new() -> Box<WalkCache> {
        let regions = [const { AtomicU64::new(UNCACHED) }; REGIONS];
        Box::new(WalkCache { regions, parts: AtomicU64::new(0), walks: AtomicU32::new(0) })
    }

    #[cold]
    fn flush(&mut self) {
        *self.walks.get_mut() = 0;
        let mut parts = mem::take(self.parts.get_mut());
        while parts != 0 {
            let first = parts.trailing_zeros() as usize * PART;
            self.regions[first..first + PART].iter_mut().for_each(|word| *word.get_mut() = UNCACHED);
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
    /// The cached translation of `va`, with the entry if it is a page. The entries of larger leaves are not read again.
    #[inline(always)]
    pub(super) fn look_up<F: Format>(
        &self,
        InputAddress(va): InputAddress,
        page_shift: u32,
    ) -> Option<(Translation, u64)> {
        let region_shift = 2 * page_shift - 3;
        let word = self.cache.regions[(va >> region_shift) as usize % REGIONS].load(Ordering::Relaxed);
        // If the word is for the region of `va`, this removes the region's number. Otherwise the result is larger than any word
        // without a number.
        let word = word ^ va >> (region_shift + REGION_BITS - NUMBER) & (u64::MAX << NUMBER);
        if word < 1 << LEVEL {
            let place = word + (va >> page_shift & ((1 << (page_shift - 3)) - 1));
            let entry = *self.entries().get(place as usize)?;
            let page = self.page.address(entry, F::ADDRESS_SHIFT)?;
            let pa = OutputAddress(page.0 | va & ((1 << page_shift) - 1));
            return Some((Translation { pa, level: 0 }, entry));
        }
        if word >= UNCACHED {
            return None;
        }
        let pa = (word & ((1 << LEVEL) - 1)) << region_shift | va & ((1 << region_shift) - 1);
        Some((Translation { pa: OutputAddress(pa), level: (word >> LEVEL) as u8 }, 0))
    }

    /// Caches what a walk to `va` found: a leaf that translates to `pa`.
    pub(super) fn fill(&self, geometry: Geometry, InputAddress(va): InputAddress, pa: OutputAddress, slot: Slot) {
        let place = match slot.level {
            // The root may have another length than other tables of pages.
            0 if geometry.levels() > 1 => self.arena.place(slot.pa).checked_sub(geometry.index(0, va)),
            1 | 2 => Some(pa.0 >> geometry.shift(1)),
            _ => None,
        };
        let Some(word) = place.and_then(|place| word(geometry, va, slot.level, place)) else { return };
        let walks = self.cache.walks.load(Ordering::Relaxed);
        if walks < MIN_WALKS {
            // Concurrent walks may not all be counted. Counting them exactly would cost more than it saves.
            self.cache.walks.store(walks + 1, Ordering::Relaxed);
        } else {
            self.cache.set((va >> geometry.shift(1)) as usize % REGIONS, word);
        }
    }
}

/// The word for the region of `va`; `None` if the values do not fit in it.
fn word(geometry: Geometry, va: u64, level: u8, place: u64) -> Option<u64> {
    let number = va >> geometry.shift(1) >> REGION_BITS;
    let fits = place >> LEVEL == 0 && number >> (64 - NUMBER) == 0;
    fits.then_some(number << NUMBER | u64::from(level) << LEVEL | place)
}
