//! `memfd-pread`: 64 bytes from a random place of a large file in memory. The kernel copies them through the direct map,
//! so each read that leaves the reach of the TLB costs a walk of the kernel's own tables, and little else differs.

use std::os::unix::fs::FileExt;

use workloads::memory::memory_file;

use super::super::random::{below, mix, stream};
use super::super::report::Report;
use super::super::{WorkloadError, arguments as common};
use super::refused;

const PER_SECOND: u64 = 2_000_000;
const READ_BYTES: usize = 64;
const BLOCK_BYTES: usize = 1 << 20;

/// Arguments of `memfd-pread`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    work: super::Work,
    /// Size of the file, in blocks of 1M
    #[arg(long, default_value = "1G", value_parser = common::size)]
    bytes: u64,
}

pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let reads = arguments.work.operations(PER_SECOND)?;
    let bytes = common::multiple("bytes", arguments.bytes, BLOCK_BYTES as u64, "a block")?;
    common::room("bytes", bytes as u128)?;
    let file = memory_file(arguments.bytes).map_err(refused("memfd_create"))?;
    let places = bytes / READ_BYTES;
    let value = |place: usize| mix(arguments.work.seed ^ place as u64);
    let mut block = vec![0; BLOCK_BYTES];
    for first in (0..places).step_by(BLOCK_BYTES / READ_BYTES) {
        for (place, line) in (first..).zip(block.chunks_exact_mut(READ_BYTES)) {
            line[..8].copy_from_slice(&value(place).to_ne_bytes());
        }
        file.write_all_at(&block, (first * READ_BYTES) as u64).map_err(refused("write to a memfd"))?;
    }
    let order = || stream(arguments.work.seed).map(|bits| below(bits, places)).take(reads as usize);
    let expected = order().fold(0u64, |sum, place| sum.wrapping_add(value(place)));
    let report = arguments.work.measure("memfd-pread", reads, expected, || {
        let mut line = [0; READ_BYTES];
        order().try_fold(0u64, |sum, place| {
            file.read_exact_at(&mut line, (place * READ_BYTES) as u64).map_err(refused("pread from a memfd"))?;
            Ok(sum.wrapping_add(u64::from_ne_bytes(*line.first_chunk().expect("64 bytes"))))
        })
    })?;
    Ok(report.argument("bytes", arguments.bytes))
}
