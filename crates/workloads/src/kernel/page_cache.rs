//! `page-cache`: files of several sizes are written and read back, and the kernel is asked how much page cache each file uses.
//!
//! A file uses at least whole base pages of page cache, so a small file uses more of it the larger the base pages are.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::sys::mman::ProtFlags;

use super::{KernelError, Stopped, check_stopped, file, refused};
use crate::memory::{Mapping, base_page};
use crate::random::mix;

/// Number of files of each size.
pub const FILES: u64 = 16;
/// cachestat(2) has this number on every architecture (Linux 6.5, scripts/syscall.tbl).
const CACHESTAT: libc::c_long = 451;

/// The page cache used by files of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedFiles {
    /// Size of a file in bytes.
    pub bytes: u64,
    /// Bytes of page cache used by all files of this size.
    pub held_bytes: u64,
}

/// The system call that reported how much page cache a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSource {
    /// cachestat(2): all pages in the cache, including those of large folios beyond the end of the file.
    Cachestat,
    /// mincore(2): the pages that a mapping of the file covers. Used where the kernel has no cachestat, and where a file system
    /// keeps no pages of its own (overlayfs, whose files are cached as files of the file system below).
    Mincore,
}

impl CacheSource {
    /// The name of the system call.
    pub fn name(self) -> &'static str {
        match self {
            CacheSource::Cachestat => "cachestat",
            CacheSource::Mincore => "mincore",
        }
    }
}

/// The result of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCacheResult {
    /// One entry for each size.
    pub held: Vec<CachedFiles>,
    /// The system call that reported these figures.
    pub source: CacheSource,
    /// The sum of the data read back.
    pub sum: u64,
    /// The correct value of the sum.
    pub expected: u64,
}

/// Writes [`FILES`] files of each size into an empty directory, reads them, and queries how much page cache they use.
pub fn run(sizes: &[u64], seed: u64, directory: &Path, stopped: Stopped<'_>) -> Result<PageCacheResult, KernelError> {
    let mut found = PageCacheResult { held: Vec::new(), source: CacheSource::Cachestat, sum: 0, expected: 0 };
    for (at, bytes) in sizes.iter().copied().enumerate() {
        let mut held_bytes = 0;
        for number in 0..FILES {
            check_stopped(stopped)?;
            let fill = mix(seed ^ (at as u64 * FILES + number)) as u8;
            let path = file(directory, at as u64 * FILES + number);
            let file = File::options().create_new(true).read(true).write(true).open(&path);
            let mut file = file.map_err(refused("create a file"))?;
            let content = vec![fill; bytes as usize];
            file.write_all(&content).map_err(refused("write a file"))?;
            let mut back = Vec::with_capacity(content.len());
            File::open(&path).and_then(|mut file| file.read_to_end(&mut back)).map_err(refused("read a file"))?;
            let sum = |content: &[u8]| content.iter().fold(0u64, |sum, byte| sum.wrapping_add(u64::from(*byte)));
            found.sum = found.sum.wrapping_add(sum(&back));
            found.expected = found.expected.wrapping_add(bytes.wrapping_mul(u64::from(fill)));
            let (own_bytes, source) = cached_bytes(&file, bytes)?;
            held_bytes += own_bytes;
            found.source = source;
        }
        found.held.push(CachedFiles { bytes, held_bytes });
    }
    Ok(found)
}

/// The page cache of a file that was just written and read, in bytes.
fn cached_bytes(file: &File, bytes: u64) -> Result<(u64, CacheSource), KernelError> {
    let by_mincore = || {
        let pages = pages_by_mincore(file, bytes as usize).map_err(refused("query the pages in memory (mincore)"))?;
        Ok((pages * base_page().bytes(), CacheSource::Mincore))
    };
    match pages_by_cachestat(file) {
        // There are no pages at all for a file that was just read, so its pages belong to another file.
        Ok(0) => by_mincore(),
        Ok(pages) => Ok((pages * base_page().bytes(), CacheSource::Cachestat)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => by_mincore(),
        Err(error) => Err(refused("query the page cache of a file (cachestat)")(error)),
    }
}

/// Number of page cache pages of a whole file.
fn pages_by_cachestat(file: &File) -> io::Result<u64> {
    // Offset and length; a length of 0 means the whole file.
    let range = [0u64; 2];
    // The counts are nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted.
    let mut counts = [0u64; 5];
    // SAFETY: both arrays are as long as the structures that the call reads and writes (cachestat(2)), and outlive it.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    if result == 0 { Ok(counts[0]) } else { Err(io::Error::last_os_error()) }
}

/// Number of pages in memory of a file of `bytes` bytes.
fn pages_by_mincore(file: &File, bytes: usize) -> io::Result<u64> {
    let mapping = Mapping::of_file(file, bytes, ProtFlags::PROT_READ)?;
    let mut pages = vec![0u8; bytes.div_ceil(base_page().bytes() as usize)];
    // SAFETY: the vector has a byte for each page of the mapping, which exists until the end of this function.
    let result = unsafe { libc::mincore(mapping.start().as_ptr().cast(), bytes, pages.as_mut_ptr()) };
    let resident = pages.iter().filter(|page| **page & 1 == 1).count() as u64;
    if result == 0 { Ok(resident) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_agree_on_whole_pages() {
        let page = base_page().bytes();
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let sizes = [1, page, page + 1, 5 * page - 1];
        let found = run(&sizes, 3, directory.path(), &|| None).unwrap();
        assert_eq!(found.sum, found.expected);
        let held: Vec<u64> = found.held.iter().map(|held| held.held_bytes / page / FILES).collect();
        assert_eq!(held, [1, 1, 2, 5]);
        for (at, bytes) in sizes.iter().enumerate() {
            let file = File::open(file(directory.path(), at as u64 * FILES)).unwrap();
            assert_eq!(pages_by_mincore(&file, *bytes as usize).unwrap(), held[at], "{bytes}");
        }
    }
}
