//! `directory-read`: the names of 4,096 files, read again and again.

use std::ffi::OsStr;
use std::fs;

use super::super::WorkloadError;
use super::super::random::mix;
use super::super::report::Report;
use super::refused;
use super::scratch::{Arguments, file, go_on};

/// Directories in a second, of [`FILES`] files.
const PER_SECOND: u64 = 400;
const FILES: u64 = 4096;

pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let rounds = arguments.work.operations(PER_SECOND)?;
    let scratch = arguments.scratch()?;
    let mut expected = 0u64;
    for number in 0..FILES {
        let path = file(scratch.path(), number);
        fs::write(&path, []).map_err(refused("create a file"))?;
        expected = expected.wrapping_add(hash(path.file_name().unwrap_or_default()));
    }
    let report = arguments.work.measure("directory-read", rounds * FILES, expected.wrapping_mul(rounds), || {
        let mut sum = 0u64;
        for _ in 0..rounds {
            go_on()?;
            for entry in fs::read_dir(scratch.path()).map_err(refused("open a directory"))? {
                let name = entry.map_err(refused("read a directory"))?.file_name();
                sum = sum.wrapping_add(hash(&name));
            }
        }
        Ok(sum)
    })?;
    Ok(report.argument("directory", arguments.parent().display().to_string()))
}

/// In whichever order the names come: they are added up.
fn hash(name: &OsStr) -> u64 {
    name.as_encoded_bytes().iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}
