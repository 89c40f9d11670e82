//! `mapped-read`: files are opened, mapped, read completely (one word of every 64 bytes), unmapped and closed, one after the
//! other. When a file is in the page cache, its faults dominate the cost, and their number depends on how many pages a fault maps
//! at once (fault-around, folio size).

use std::fs::{self, File};
use std::path::Path;

use nix::sys::mman::ProtFlags;

use super::{Completed, KernelError, Load, Stopped, check_stopped, file, refused};
use crate::memory::Mapping;
use crate::random::mix;

pub const FILES: u64 = 16;
/// One word is read in every line of this many bytes.
const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
/// The fixed cost of a file (calls and faults) and the cost of reading a byte, in nanoseconds.
const FILE_NS: f64 = 8000.0;
const BYTE_NS: f64 = 0.2;

/// Files of `bytes` bytes read in a second.
pub fn per_second(bytes: usize) -> u64 {
    (1e9 / (FILE_NS + BYTE_NS * bytes as f64)).max(1.0) as u64
}

/// Makes files of `bytes` bytes, a multiple of 64, in an empty directory, and reads files `load.operations` times.
pub fn run(load: Load, bytes: usize, directory: &Path, stopped: Stopped<'_>) -> Result<Completed, KernelError> {
    let Load { operations, seed } = load;
    let lines = (bytes / LINE_BYTES) as u64;
    let word = |number: u64, line: u64| mix(seed ^ (number * lines + line));
    let mut sums = Vec::new();
    for number in 0..FILES {
        check_stopped(stopped)?;
        let mut content = vec![0; bytes];
        for (line, content) in (0..lines).zip(content.chunks_exact_mut(LINE_BYTES)) {
            content[..size_of::<u64>()].copy_from_slice(&word(number, line).to_ne_bytes());
        }
        fs::write(file(directory, number), content).map_err(refused("create a file"))?;
        sums.push((0..lines).fold(0u64, |sum, line| sum.wrapping_add(word(number, line))));
    }
    let order = (0..operations).map(|operation| operation % FILES);
    let expected = order.clone().fold(0u64, |sum, number| sum.wrapping_add(sums[number as usize]));
    Completed::of(operations, expected, || {
        let mut sum = 0u64;
        for number in order {
            check_stopped(stopped)?;
            sum = sum.wrapping_add(read(&file(directory, number), bytes)?);
        }
        Ok(sum)
    })
}

/// Opens, maps, reads, unmaps and closes a file.
fn read(path: &Path, bytes: usize) -> Result<u64, KernelError> {
    let file = File::open(path).map_err(refused("open a file"))?;
    let mapping = Mapping::of_file(&file, bytes, ProtFlags::PROT_READ).map_err(refused("map a file"))?;
    let start = mapping.start().cast::<u64>();
    let sum = (0..mapping.bytes() / LINE_BYTES).fold(0u64, |sum, line| {
        // SAFETY: the word is inside the mapping, which starts at a page; the file has all these bytes, and no other user may
        // enter the directory to truncate it.
        sum.wrapping_add(unsafe { start.add(line * LINE_WORDS).read() })
    });
    mapping.unmap().map_err(refused("unmap a file"))?;
    Ok(sum)
}
