//! `memfd-pread`: 64 bytes are read from a random position of a large file in memory. The kernel copies them through the direct
//! map, so every read beyond the reach of the TLB costs a walk of the kernel's page tables, and little else differs.

use std::os::unix::fs::FileExt;

use super::{Completed, KernelError, Load, refused};
use crate::memory::memory_file;
use crate::random::{below, mix, stream};

/// Operations in a second.
pub const PER_SECOND: u64 = 2_000_000;
/// The size of the file must be a multiple of this, in bytes.
pub const BLOCK_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64;

/// Reads `load.operations` times from a file of `bytes` bytes, a multiple of [`BLOCK_BYTES`].
pub fn run(load: Load, bytes: usize) -> Result<Completed, KernelError> {
    let Load { operations: reads, seed } = load;
    let file = memory_file(bytes as u64).map_err(refused("memfd_create"))?;
    let places = bytes / READ_BYTES;
    let value = |place: usize| mix(seed ^ place as u64);
    let mut block = vec![0; BLOCK_BYTES];
    for first in (0..places).step_by(BLOCK_BYTES / READ_BYTES) {
        for (place, line) in (first..).zip(block.chunks_exact_mut(READ_BYTES)) {
            line[..8].copy_from_slice(&value(place).to_ne_bytes());
        }
        file.write_all_at(&block, (first * READ_BYTES) as u64).map_err(refused("write to a memfd"))?;
    }
    let order = || stream(seed).map(|bits| below(bits, places)).take(reads as usize);
    let expected = order().fold(0u64, |sum, place| sum.wrapping_add(value(place)));
    Completed::of(reads, expected, || {
        let mut line = [0; READ_BYTES];
        order().try_fold(0u64, |sum, place| {
            file.read_exact_at(&mut line, (place * READ_BYTES) as u64).map_err(refused("pread from a memfd"))?;
            Ok(sum.wrapping_add(u64::from_ne_bytes(*line.first_chunk().expect("64 bytes"))))
        })
    })
}
