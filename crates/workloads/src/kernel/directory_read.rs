//! `directory-read`: the names of 4,096 files are read repeatedly.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::{Completed, KernelError, Load, Stopped, check_stopped, file, refused};
use crate::random::mix;

/// Times that the directory of 4,096 files is read in a second.
pub const PER_SECOND: u64 = 400;
const FILES: u64 = 4096;

/// Makes the files in an empty directory, and reads the directory `load.operations` times.
pub fn run(load: Load, directory: &Path, stopped: Stopped<'_>) -> Result<Completed, KernelError> {
    let rounds = load.operations;
    let mut expected = 0u64;
    for number in 0..FILES {
        let path = file(directory, number);
        fs::write(&path, []).map_err(refused("create a file"))?;
        expected = expected.wrapping_add(hash(path.file_name().unwrap_or_default()));
    }
    Completed::of(rounds * FILES, expected.wrapping_mul(rounds), || {
        let mut sum = 0u64;
        for _ in 0..rounds {
            check_stopped(stopped)?;
            for entry in fs::read_dir(directory).map_err(refused("open a directory"))? {
                let name = entry.map_err(refused("read a directory"))?.file_name();
                sum = sum.wrapping_add(hash(&name));
            }
        }
        Ok(sum)
    })
}

/// A hash of a name; hashes are added up, so the order of the names does not matter.
fn hash(name: &OsStr) -> u64 {
    name.as_encoded_bytes().iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}
