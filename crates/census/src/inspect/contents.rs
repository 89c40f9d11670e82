//! Counts the zero-filled base pages inside larger leaves and folios: memory that `shrink_underused` could return.

use std::io;

use policy::census::{Backing, Region as Run};
use policy::inspect::Contents;
use policy::size::PageSize;

use super::subject::Subject;

/// The most bytes of a process that are read.
const MAX_READ_BYTES: u64 = 64 << 30;
/// Bytes that are read in one call.
const STEP_BYTES: u64 = 1 << 20;

/// Adds the contents of the large pages in these runs. The process is not stopped: memory that it frees in the meantime counts as
/// not read.
pub fn add(contents: &mut Contents, subject: &dyn Subject, runs: &[Run], base: PageSize) -> io::Result<()> {
    let is_large = |run: &&Run| {
        matches!(run.mapping.backing, Backing::Anonymous | Backing::Shmem) && run.mapping.effective() > base
    };
    let mut buffer = vec![0; STEP_BYTES as usize];
    for run in runs.iter().filter(is_large) {
        let mut at = run.start;
        while at < run.end && contents.read_bytes < MAX_READ_BYTES {
            let wanted = (run.end - at).min(STEP_BYTES) as usize;
            let read = match subject.read_memory(at, &mut buffer[..wanted]) {
                Ok(read) => read - read % base.bytes() as usize,
                Err(error) if error.raw_os_error() == Some(libc::EIO) => 0,
                Err(error) => return Err(error),
            };
            if read == 0 {
                break;
            }
            let zero = buffer[..read].chunks_exact(base.bytes() as usize).filter(|page| is_zero(page)).count() as u64;
            contents.read_bytes += read as u64;
            contents.zero_bytes += zero * base.bytes();
            at += read as u64;
        }
        contents.unread_bytes += run.end - at;
    }
    Ok(())
}

fn is_zero(page: &[u8]) -> bool {
    // Compares 16 bytes at a time: this comparison takes most of the time.
    page.chunks_exact(16).all(|words| words == [0; 16])
}
