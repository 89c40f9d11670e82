//! `file-churn`: files are created, queried (stat) and removed in batches, so that the directory has entries to search.

use std::fs;
use std::path::Path;

use super::{Completed, KernelError, Load, Stopped, check_stopped, file, refused};
use crate::random::{mix, shuffle};

/// Operations in a second.
pub const PER_SECOND: u64 = 60_000;
const BATCH: u64 = 512;

/// Creates and removes `load.operations` files in an empty directory, rounded up to whole batches.
pub fn run(load: Load, directory: &Path, stopped: Stopped<'_>) -> Result<Completed, KernelError> {
    let batches = load.operations.div_ceil(BATCH);
    let mut order: Vec<u64> = (0..BATCH).collect();
    shuffle(&mut order, load.seed);
    let length = |number: u64| mix(load.seed ^ number) % 64;
    let expected = (0..BATCH).map(length).sum::<u64>() * batches;
    Completed::of(batches * BATCH, expected, || {
        let mut bytes = 0;
        for _ in 0..batches {
            check_stopped(stopped)?;
            for number in &order {
                fs::write(file(directory, *number), &[b'x'; 64][..length(*number) as usize])
                    .map_err(refused("create a file"))?;
            }
            for number in (0..BATCH).rev() {
                bytes += fs::metadata(file(directory, number)).map_err(refused("stat a file"))?.len();
            }
            for number in &order {
                fs::remove_file(file(directory, *number)).map_err(refused("unlink a file"))?;
            }
        }
        Ok(bytes)
    })
}
