//! `page-faults`: fresh memory is touched for the first time, with one fault for each page that the policy maps.

use super::{Completed, KernelError, Load, refused};
use crate::memory::{Anonymous, base_page};

/// Operations in a second.
pub const PER_SECOND: u64 = 600_000;
const BYTES: usize = 64 << 20;

/// Touches `load.operations` pages, rounded up to whole mappings.
pub fn run(load: Load) -> Result<Completed, KernelError> {
    let page_words = base_page().bytes() as usize / size_of::<u64>();
    let pages = (BYTES / size_of::<u64>() / page_words) as u64;
    let rounds = load.operations.div_ceil(pages);
    let value = load.seed | 1;
    let expected = value.wrapping_mul(pages * (pages + 1) / 2).wrapping_mul(rounds);
    Completed::of(rounds * pages, expected, || {
        let mut sum = 0u64;
        for _ in 0..rounds {
            let mut memory = Anonymous::map(BYTES)?;
            for (words, page) in memory.slice_mut::<u64>().chunks_exact_mut(page_words).zip(1u64..) {
                // The first access is a write: a read would first map the kernel's zero page and then fault twice.
                words[0] = value.wrapping_mul(page);
            }
            for words in memory.slice::<u64>().chunks_exact(page_words) {
                // The second word is zero in fresh memory; old content would change the sum.
                sum = sum.wrapping_add(words[0]).wrapping_add(words[1]);
            }
            memory.unmap().map_err(refused("munmap"))?;
        }
        Ok(sum)
    })
}
