//! `brk-growth`: the heap grows by the program break, is written to, and shrinks.

use workloads::memory::{base_page, grow_and_shrink_heap};

use super::super::WorkloadError;
use super::super::report::Report;
use super::Work;

const PER_SECOND: u64 = 2_000;
const BYTES: u32 = 1 << 20;

pub fn run(work: &Work) -> Result<Report, WorkloadError> {
    let operations = work.operations(PER_SECOND)?;
    let pages = u64::from(BYTES).div_ceil(base_page().bytes());
    let value = work.seed | 1;
    let expected = value.wrapping_mul(pages * (pages + 1) / 2).wrapping_mul(operations);
    work.measure("brk-growth", operations, expected, || Ok(grow_and_shrink_heap(operations, BYTES, value)?))
}
