//! `file-churn`: files are created, looked at and removed, in batches, so that the directory has entries to search.

use std::fs;

use super::super::WorkloadError;
use super::super::random::{mix, shuffle};
use super::super::report::Report;
use super::refused;
use super::scratch::{Arguments, file, go_on};

const PER_SECOND: u64 = 60_000;
const BATCH: u64 = 512;

pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let batches = arguments.work.operations(PER_SECOND)?.div_ceil(BATCH);
    let scratch = arguments.scratch()?;
    let mut order: Vec<u64> = (0..BATCH).collect();
    shuffle(&mut order, arguments.work.seed);
    let length = |number: u64| mix(arguments.work.seed ^ number) % 64;
    let expected = (0..BATCH).map(length).sum::<u64>() * batches;
    let report = arguments.work.measure("file-churn", batches * BATCH, expected, || {
        let mut bytes = 0;
        for _ in 0..batches {
            go_on()?;
            for number in &order {
                fs::write(file(scratch.path(), *number), &[b'x'; 64][..length(*number) as usize])
                    .map_err(refused("create a file"))?;
            }
            for number in (0..BATCH).rev() {
                bytes += fs::metadata(file(scratch.path(), number)).map_err(refused("stat a file"))?.len();
            }
            for number in &order {
                fs::remove_file(file(scratch.path(), *number)).map_err(refused("unlink a file"))?;
            }
        }
        Ok(bytes)
    })?;
    Ok(report.argument("directory", arguments.parent().display().to_string()))
}
