//! Makes free memory for large pages ([`free_large_blocks`]), and keeps the page cache stable while faults are counted
//! ([`StablePageCache`]).

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::Path;

use crate::alone::Alone;

/// The order of a large block: 2M on x86-64.
const LARGE_ORDER: usize = 9;
/// The size of base pages in bytes.
const BASE_BYTES: u64 = 4096;
/// Free memory in large blocks that is enough for any test, in bytes.
const ENOUGH_BYTES: u64 = 4 << 30;
thread_local! {
    /// Whether this thread has a [`StablePageCache`].
    static IS_STABLE: Cell<bool> = const { Cell::new(false) };
}

/// While this exists, nothing drops the page cache, and no other test compares.
///
/// On a fault in a file, the kernel also maps the cached pages around the fault. drop_caches cannot drop dirty pages, among them all
/// pages of a tmpfs. It sets a flag on those that also means readahead, and pages with this flag are not mapped around a fault
/// (`lru_deactivate_file`, mm/swap.c; `next_uptodate_folio`, mm/filemap.c). For example, Python in a tmpfs then has 1,484 instead of
/// 843 faults until its file is written again.
#[derive(Debug)]
pub struct StablePageCache(#[allow(dead_code, reason = "held, not read")] Alone);

impl StablePageCache {
    /// Frees large blocks, writes the executable files in a directory again, and reads the libraries of this process, so that none of
    /// their pages has the flag.
    ///
    /// # Errors
    /// A file cannot be written or read.
    pub fn new(programs: &Path) -> io::Result<StablePageCache> {
        let stable = StablePageCache(Alone::wait());
        free_large_blocks();
        IS_STABLE.set(true);
        for entry in fs::read_dir(programs)? {
            let path = entry?.path();
            if is_executable(&path)? {
                let copy = path.with_extension("copy");
                fs::copy(&path, &copy)?;
                fs::rename(&copy, &path)?;
            }
        }
        let maps = fs::read_to_string("/proc/self/maps")?;
        let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
        for path in paths.filter(|path| path.to_string_lossy().contains(".so")) {
            fs::read(path)?;
        }
        Ok(stable)
    }
}

impl Drop for StablePageCache {
    fn drop(&mut self) {
        IS_STABLE.set(false);
    }
}

/// Frees the page cache and compacts memory, unless there are enough free blocks of 2M, or another test has the host to itself.
/// This is needed because builds and other tests fill all memory with page cache, and a fault without advice then finds no block:
/// the kernel does not reclaim memory for it. Needs root; without root it does nothing.
pub fn free_large_blocks() {
    if IS_STABLE.get() || large_free_bytes().is_some_and(|bytes| bytes >= ENOUGH_BYTES) {
        return;
    }
    let Some(_alone) = Alone::try_now() else { return };
    for name in ["drop_caches", "compact_memory"] {
        // Without root this write fails.
        let _ = fs::write(format!("/proc/sys/vm/{name}"), "1");
    }
}

fn is_executable(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = fs::symlink_metadata(path)?;
    Ok(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The free memory in blocks of 2M or more.
fn large_free_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/buddyinfo").ok()?;
    let of_zone = |line: &str| -> u64 {
        let (_, zone) = line.split_once("zone").unwrap_or_default();
        let counts = zone.split_whitespace().skip(1).map(|count| count.parse::<u64>().unwrap_or(0)).enumerate();
        counts.skip(LARGE_ORDER).map(|(order, count)| count * (BASE_BYTES << order)).sum()
    };
    Some(text.lines().map(of_zone).sum())
}
