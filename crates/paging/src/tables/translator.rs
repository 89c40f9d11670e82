//! Translating many addresses of tables that do not change meanwhile.

use alloc::boxed::Box;
use alloc::vec;

use super::Tables;
use super::Translation;
use crate::error::Error;
use crate::format::{Format, Pattern};
use crate::log::Log;

/// Regions that are remembered, each of what a table of pages spans: 4G of them with 4K pages.
const REGIONS: usize = 2048;

/// Translates as [`Tables::translate`], and remembers what the walk to a region found, as processors do: the table of
/// its pages, or the leaf that maps all of it. It borrows the tables, so nothing can change what it remembers.
#[derive(Clone, Debug)]
pub struct Translator<'a, F, L> {
    tables: &'a Tables<F, L>,
    /// Those of the arena.
    entries: &'a [u64],
    page_shift: u32,
    /// The bits of the index into a table of pages: fewer than a page of entries has, where that is the root.
    index: u64,
    page: Pattern,
    regions: Box<[Region; REGIONS]>,
    /// The entry and the level of the leaf, for regions that one leaf maps.
    leaves: Box<[[u64; 2]; REGIONS]>,
}

/// What is known of a region: first the complement of its number, which is its addresses over its length, those bits too
/// that are not resolved. No region has the complement zero. Then, with [`IS_LEAF`], where its memory begins; else the
/// place in the arena of its table of pages. Plain numbers, so that zeroed memory will do.
type Region = [u64; 2];

const IS_LEAF: u64 = 1 << 63;

impl<F: Format, L: Log> Tables<F, L> {
    /// Translates many addresses, faster than [`Tables::translate`] does one by one.
    pub fn translator(&self) -> Translator<'_, F, L> {
        let geometry = self.geometry();
        Translator {
            tables: self,
            entries: self.arena.entries(),
            page_shift: geometry.shift(0),
            index: geometry.entries(0) - 1,
            page: self.format.leaf_pattern(0),
            regions: zeroed(),
            leaves: zeroed(),
        }
    }
}

impl<F: Format, L: Log> Translator<'_, F, L> {
    /// As [`Tables::translate`].
    ///
    /// # Errors
    /// As [`Tables::translate`].
    #[inline]
    pub fn translate(&mut self, va: u64) -> Result<Translation, Error> {
        // Shifts by what is known here are one instruction less each.
        match self.page_shift {
            12 => self.recall(va, 12),
            page_shift => self.recall(va, page_shift),
        }
    }

    #[inline(always)]
    fn recall(&mut self, va: u64, page_shift: u32) -> Result<Translation, Error> {
        let index_bits = page_shift - 3;
        let number = va >> (page_shift + index_bits);
        let place = number as usize % REGIONS;
        let [known, value] = self.regions[place];
        if known != !number {
            return self.learn(va);
        }
        if value & IS_LEAF != 0 {
            let [entry, level] = self.leaves[place];
            let offset = va & ((1 << (page_shift + index_bits)) - 1);
            return Ok(Translation { pa: (value ^ IS_LEAF) | offset, level: level as u8, entry });
        }
        let index = (va >> page_shift) & self.index;
        if let Some(entry) = self.entries.get((value + index) as usize).copied()
            && let Some(memory) = self.page.address(entry, F::ADDRESS_SHIFT)
        {
            return Ok(Translation { pa: memory | va & ((1 << page_shift) - 1), level: 0, entry });
        }
        self.learn(va)
    }

    /// Walks from the root, and remembers what that found.
    #[inline(never)]
    fn learn(&mut self, va: u64) -> Result<Translation, Error> {
        let found = self.tables.translate(va)?;
        let geometry = self.tables.geometry();
        let number = va >> geometry.shift(1);
        let place = number as usize % REGIONS;
        let value = if found.level == 0 {
            let slot = self.tables.slot(geometry.resolved(va))?;
            let index = (va >> self.page_shift) & self.index;
            self.tables.arena.place(slot.pa) - index
        } else {
            self.leaves[place] = [found.entry, found.level.into()];
            found.pa & !(geometry.span(1) - 1) | IS_LEAF
        };
        self.regions[place] = [!number, value];
        Ok(found)
    }
}

fn zeroed() -> Box<[[u64; 2]; REGIONS]> {
    vec![[0; 2]; REGIONS].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([[0; 2]; REGIONS]))
}
