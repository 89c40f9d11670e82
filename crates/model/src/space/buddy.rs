//! Physical memory: a binary buddy allocator. To simulate fragmentation, pages of other users occupy some blocks.

use std::collections::BTreeSet;

use crate::address::Pa;
use crate::tlb::next_random;

/// Size of the blocks for which fragmentation is defined: a PMD leaf of a 4K granule.
const FRAGMENT_BYTES: u64 = 2 << 20;
/// log2 of the largest block in bytes, which is the largest hugetlb page.
const MAX_BLOCK_SHIFT: u32 = 34;

/// The memory of a machine, and its fragmentation by pages of other users that never move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Physical {
    /// Total memory in bytes.
    pub bytes: u64,
    /// The share of 2M blocks, 0 to 1, in which another user has one page, at a random offset.
    pub fragmentation: f64,
    /// Seed for the choice of blocks and offsets.
    pub seed: u64,
}

impl Default for Physical {
    fn default() -> Physical {
        Physical { bytes: 64 << 30, fragmentation: 0.0, seed: 0 }
    }
}

/// Free memory, in naturally aligned blocks of powers of two.
#[derive(Clone, Debug)]
pub(crate) struct Buddy {
    base_shift: u32,
    /// Free blocks by order; order 0 is a base page.
    free: Vec<BTreeSet<u64>>,
    /// Bytes allocated and not released.
    allocated_bytes: u64,
}

impl Buddy {
    pub fn new(physical: &Physical, base_bytes: u64) -> Buddy {
        let base_shift = base_bytes.trailing_zeros();
        let free = vec![BTreeSet::new(); (MAX_BLOCK_SHIFT - base_shift + 1) as usize];
        let mut buddy = Buddy { base_shift, free, allocated_bytes: 0 };
        buddy.add(0, physical.bytes & !(base_bytes - 1));
        let mut state = physical.seed;
        let unit = FRAGMENT_BYTES.max(base_bytes);
        for block in 0..if physical.fragmentation > 0.0 { physical.bytes / unit } else { 0 } {
            let (chosen, offset) = (next_random(&mut state), next_random(&mut state));
            // The upper 53 bits form a fraction below 1.
            if ((chosen >> 11) as f64) < physical.fragmentation * (1u64 << 53) as f64 {
                buddy.pin(block * unit + offset % (unit / base_bytes) * base_bytes);
            }
        }
        buddy
    }

    /// Adds a range of memory as the largest aligned blocks.
    fn add(&mut self, begin: u64, end: u64) {
        let mut at = begin;
        while at < end {
            let fits = 63 - (end - at).leading_zeros();
            let shift = if at == 0 { fits } else { fits.min(at.trailing_zeros()) }.min(MAX_BLOCK_SHIFT);
            self.free[(shift - self.base_shift) as usize].insert(at);
            at += 1 << shift;
        }
    }

    fn shift(&self, order: usize) -> u32 {
        self.base_shift + order as u32
    }

    /// Removes a page from the free memory.
    fn pin(&mut self, page: u64) {
        let found = (0..self.free.len()).find_map(|order| {
            let block = page >> self.shift(order) << self.shift(order);
            self.free[order].remove(&block).then_some((order, block))
        });
        let Some((order, block)) = found else { return };
        self.add(block, page);
        self.add(page + (1 << self.base_shift), block + (1 << self.shift(order)));
    }

    /// Allocates a block of `bytes`, a power of two and at least a base page: the lowest block of the smallest sufficient
    /// order.
    pub fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        let wanted = (bytes.trailing_zeros() - self.base_shift) as usize;
        let found = (wanted..self.free.len()).find(|order| !self.free[*order].is_empty())?;
        let block = self.free[found].pop_first()?;
        for order in wanted..found {
            let upper = block + (1 << self.shift(order));
            self.free[order].insert(upper);
        }
        self.allocated_bytes += bytes;
        Some(Pa(block))
    }

    /// Releases a block and merges it with its buddies.
    pub fn release(&mut self, block: Pa, bytes: u64) {
        self.allocated_bytes -= bytes;
        let mut order = (bytes.trailing_zeros() - self.base_shift) as usize;
        let mut block = block.0;
        loop {
            let bytes = 1 << self.shift(order);
            if order + 1 == self.free.len() || !self.free[order].remove(&(block ^ bytes)) {
                break;
            }
            block &= !bytes;
            order += 1;
        }
        self.free[order].insert(block);
    }

    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    #[cfg(test)]
    pub fn free_bytes(&self) -> u64 {
        (0..self.free.len()).map(|order| (self.free[order].len() as u64) << self.shift(order)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: u64, fragmentation: f64) -> Buddy {
        Buddy::new(&Physical { bytes, fragmentation, seed: 3 }, 4096)
    }

    #[test]
    fn blocks_are_aligned_and_merge_when_released() {
        let mut buddy = memory((1 << 30) + (12 << 10), 0.0);
        assert_eq!(buddy.free_bytes(), (1 << 30) + (12 << 10));
        let whole = buddy.free.clone();
        let blocks: Vec<(Pa, u64)> = [4096, 2 << 20, 65536, 4096, 1 << 29]
            .iter()
            .map(|bytes| (buddy.allocate(*bytes).unwrap(), *bytes))
            .collect();
        assert!(blocks.iter().all(|(block, bytes)| block.0 % bytes == 0), "{blocks:?}");
        assert_eq!(buddy.allocate(1 << 30), None);
        blocks.iter().for_each(|(block, bytes)| buddy.release(*block, *bytes));
        assert_eq!(buddy.free, whole);
    }

    #[test]
    fn no_large_page_is_free_if_every_block_is_fragmented() {
        let mut buddy = memory(64 << 20, 1.0);
        assert_eq!(buddy.free_bytes(), (64 << 20) - 32 * 4096);
        assert_eq!(buddy.allocate(2 << 20), None);
        assert!(buddy.allocate(512 << 10).is_some());
        let half: usize = {
            let mut buddy = memory(1 << 30, 0.5);
            std::iter::from_fn(|| buddy.allocate(2 << 20)).count()
        };
        assert!((200..312).contains(&half), "{half}");
    }

    #[test]
    fn allocation_fails_without_free_memory() {
        let mut buddy = memory(16 << 10, 0.0);
        assert_eq!(std::iter::from_fn(|| buddy.allocate(4096)).count(), 4);
    }
}
