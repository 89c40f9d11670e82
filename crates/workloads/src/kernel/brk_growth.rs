//! `brk-growth`: the heap grows by moving the program break, is written to, and shrinks.

use super::{Completed, KernelError, Load};
use crate::memory::{base_page, grow_and_shrink_heap};

/// Operations in a second.
pub const PER_SECOND: u64 = 2_000;
const BYTES: u32 = 1 << 20;

/// Grows and shrinks the heap `load.operations` times.
pub fn run(load: Load) -> Result<Completed, KernelError> {
    let Load { operations, seed } = load;
    let pages = u64::from(BYTES).div_ceil(base_page().bytes());
    let value = seed | 1;
    let expected = value.wrapping_mul(pages * (pages + 1) / 2).wrapping_mul(operations);
    Completed::of(operations, expected, || Ok(grow_and_shrink_heap(operations, BYTES, value)?))
}
