//! What walks found, as processors remember it, so that the next translation near by need not walk.

use alloc::boxed::Box;
use core::mem;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Slot, Tables, Translation};
use crate::arena::Arena;
use crate::format::{Format, Pattern};
use crate::geometry::Geometry;
use crate::log::Log;

/// log2 of the regions that are remembered, each of what a table of pages spans: 4G of them with 4K pages.
const REGION_BITS: u32 = 11;
const REGIONS: usize = 1 << REGION_BITS;

/// Where a region's number begins in its word.
const NUMBER: u32 = 32;
/// What the place is of, in the lowest bits: 1 the first entry of a table of pages, 2 the leaf at level 1 that maps
/// all of the region, 3 that at level 2. That is 1 more than the level of the leaf that a walk ends at.
const KINDS: usize = 4;
/// Where the place begins, above the kind.
const PLACE: u32 = 2;

/// As many walks are made after a change before anything is remembered: to forget costs as much as some tens of walks,
/// and tables that change all the time are not worth remembering.
const PATIENCE: u32 = 64;

/// An arena, and what walks in it found. Whoever gets hold of it to change it has it forget first.
#[derive(Debug)]
pub(super) struct Memory {
    arena: Arena,
    /// By region, where in the arena its table of pages is, or the leaf that maps all of it.
    ///
    /// A word is the region's number less the bits that are its place here, then a place in the arena, counted in
    /// entries, then what that is of (0: nothing). Being one word, it is whole for every thread that reads it.
    words: Box<[AtomicU64; REGIONS]>,
    /// Walks since the last change, but no more of them than matter.
    walks: AtomicU32,
    leaves: [Leaf; KINDS],
}

/// How to read a leaf, by the kind of a word.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// The bits of an index from the remembered place on.
    index: u64,
    pattern: Pattern,
    /// The bits of an offset into its memory.
    offset: u64,
}

impl Leaf {
    fn of_kind<F: Format>(format: &F, kind: usize) -> Leaf {
        let geometry = format.geometry();
        let Some(level) = kind.checked_sub(1).map(|level| level as u8).filter(|level| *level < geometry.levels())
        else {
            return Leaf { index: 0, pattern: Pattern::NONE, offset: 0 };
        };
        let index = if level == 0 { geometry.entries(0) - 1 } else { 0 };
        Leaf { index, pattern: format.leaf_pattern(level), offset: geometry.span(level) - 1 }
    }
}

impl Memory {
    pub(super) fn of<F: Format>(format: &F, arena: Arena) -> Memory {
        Memory::with_leaves(arena, core::array::from_fn(|kind| Leaf::of_kind(format, kind)))
    }

    fn with_leaves(arena: Arena, leaves: [Leaf; KINDS]) -> Memory {
        let words = Box::new([const { AtomicU64::new(0) }; REGIONS]);
        Memory { arena, words, walks: AtomicU32::new(0), leaves }
    }

    #[cold]
    fn forget(&mut self) {
        if mem::take(self.walks.get_mut()) >= PATIENCE {
            self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
        }
    }
}

/// A copy remembers nothing yet.
impl Clone for Memory {
    fn clone(&self) -> Memory {
        Memory::with_leaves(self.arena.clone(), self.leaves)
    }
}

impl Deref for Memory {
    type Target = Arena;

    #[inline]
    fn deref(&self) -> &Arena {
        &self.arena
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut Arena {
        if *self.walks.get_mut() != 0 {
            self.forget();
        }
        &mut self.arena
    }
}

impl<F: Format, L: Log> Tables<F, L> {
    /// What is remembered of `va`, if it is mapped there. The only branches are for what is not.
    #[inline(always)]
    pub(super) fn recalled(&self, va: u64, page_shift: u32) -> Option<Translation> {
        let memory = &self.arena;
        let region_shift = 2 * page_shift - 3;
        let word = memory.words[(va >> region_shift) as usize % REGIONS].load(Ordering::Relaxed);
        // The number less its lowest bits, where it stands in the word.
        if (word ^ va >> (region_shift + REGION_BITS - NUMBER)) >> NUMBER != 0 {
            return None;
        }
        let kind = word as usize % KINDS;
        let Leaf { index, pattern, offset } = &memory.leaves[kind];
        let place = u64::from(word as u32 >> PLACE) + (va >> page_shift & index);
        let entry = *memory.entries().get(place as usize)?;
        let pa = pattern.address(entry, F::ADDRESS_SHIFT)?;
        Some(Translation { pa: pa | va & offset, level: (kind as u8).wrapping_sub(1), entry })
    }

    /// Remembers the slot that a walk to `va` ended at.
    pub(super) fn remember(&self, va: u64, slot: Slot) {
        let geometry = self.geometry();
        let Some(word) = word(geometry, va, slot.level, self.arena.place(slot.pa)) else { return };
        let memory = &self.arena;
        if memory.walks.load(Ordering::Relaxed) < PATIENCE {
            memory.walks.fetch_add(1, Ordering::Relaxed);
        } else {
            memory.words[(va >> geometry.shift(1)) as usize % REGIONS].store(word, Ordering::Relaxed);
        }
    }
}

/// The word for the region of `va`, whose entry at `level` is the arena's entry number `place`.
///
/// None where a root is a table of pages: it may be of another length than the others.
fn word(geometry: Geometry, va: u64, level: u8, place: u64) -> Option<u64> {
    let place = match level {
        0 if geometry.levels() > 1 => place.checked_sub(geometry.index(0, va))?,
        1 | 2 => place,
        _ => return None,
    };
    let kind = u64::from(level) + 1;
    let number = va >> geometry.shift(1) >> REGION_BITS;
    let fits = place >> (NUMBER - PLACE) == 0 && number >> (64 - NUMBER) == 0;
    fits.then_some(number << NUMBER | place << PLACE | kind)
}
