//! Numbers pages in the order in which a trace first touches them.

use std::collections::HashMap;

use crate::simulation::Hashing;

/// log2 of the pages of a block.
const BLOCK_SHIFT: u32 = 6;
const BLOCK: usize = 1 << BLOCK_SHIFT;

/// Assigns numbers to pages. It stores them in blocks of neighbouring pages: the pages of a chunk are often in order and then need
/// only one hash lookup per block.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The index in `blocks` of each block of pages.
    places: HashMap<u64, u32, Hashing>,
    /// For each page of a block, its number plus one, or 0 if it has none.
    blocks: Vec<[u32; BLOCK]>,
    /// The block of the last lookup, and its index in `blocks`.
    last: Option<(u64, u32)>,
    /// Number of pages with a number.
    count: u32,
}

impl Numbers {
    /// The number of a page, and whether it is new.
    #[inline]
    pub(super) fn number(&mut self, page: u64) -> (u32, bool) {
        let block = page >> BLOCK_SHIFT;
        let place = match self.last {
            Some((last, place)) if last == block => place,
            _ => self.place(block),
        };
        let number = &mut self.blocks[place as usize][page as usize % BLOCK];
        let is_new = *number == 0;
        if is_new {
            self.count += 1;
            *number = self.count;
        }
        (*number - 1, is_new)
    }

    fn place(&mut self, block: u64) -> u32 {
        let blocks = &mut self.blocks;
        let place = *self.places.entry(block).or_insert_with(|| {
            blocks.push([0; BLOCK]);
            blocks.len() as u32 - 1
        });
        self.last = Some((block, place));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_pages_in_the_order_of_their_first_lookup() {
        let mut numbers = Numbers::default();
        let pages = [7, 8, 7, 1 << 40, 6, u64::MAX >> 12, 1 << 40, 0, 64, 8];
        let found: Vec<(u32, bool)> = pages.iter().map(|page| numbers.number(*page)).collect();
        let expected = [
            (0, true),
            (1, true),
            (0, false),
            (2, true),
            (3, true),
            (4, true),
            (2, false),
            (5, true),
            (6, true),
            (1, false),
        ];
        assert_eq!(found, expected);
    }
}
