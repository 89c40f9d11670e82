//! Fills and copies the memory of a stopped task.

use std::io;

use host::maps::Presence;
use policy::size::PageSize;

use super::ptrace::{self, Tid};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Fills the present pages (of size `page_size`) of a range with zeros. Returns whether that succeeded.
pub fn zero(tid: Tid, (start, end): (u64, u64), page_size: PageSize, base: PageSize) -> bool {
    let zeros = vec![0u8; COPY_BYTES.min(end.saturating_sub(start)) as usize];
    let mut present = present_parts(tid, (start, end), page_size, base).into_iter();
    present.all(|(at, bytes)| ptrace::write_memory(tid, at, &zeros[..bytes as usize]).is_ok())
}

/// Copies a range except its zero-filled base pages; holes stay holes. Returns whether that succeeded.
pub fn copy_filled(tid: Tid, (from, to, bytes): (u64, u64, u64), page_size: PageSize, base: PageSize) -> bool {
    let mut buffer = vec![0u8; COPY_BYTES.min(bytes) as usize];
    present_parts(tid, (from, from + bytes), page_size, base).into_iter().all(|(at, bytes)| {
        let part = &mut buffer[..bytes as usize];
        ptrace::read_memory(tid, at, part).is_ok()
            && filled_runs(part, base.bytes() as usize).into_iter().all(|(first, end)| {
                ptrace::write_memory(tid, to + (at - from) + first as u64, &part[first..end]).is_ok()
            })
    })
}

/// Copies a range of base pages. Its holes become zeros without being read: reading would allocate a page table
/// that the program would not have without pagelab.
pub fn copy(tid: Tid, (from, to, bytes): (u64, u64, u64), base: PageSize) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        let mut part = vec![0u8; COPY_BYTES.min(bytes - done) as usize];
        let first = from + done;
        for (at, bytes) in present_parts(tid, (first, first + part.len() as u64), base, base) {
            let offset = (at - first) as usize;
            ptrace::read_memory(tid, at, &mut part[offset..offset + bytes as usize])?;
        }
        ptrace::write_memory(tid, to + done, &part)?;
        done += part.len() as u64;
    }
    Ok(())
}

/// The parts of a range whose pages (of size `page_size`) may hold data, as (address, bytes), each at most
/// `COPY_BYTES`. If presence cannot be read, every page may hold data.
fn present_parts(tid: Tid, (start, end): (u64, u64), page_size: PageSize, base: PageSize) -> Vec<(u64, u64)> {
    let presence = Presence::of(tid, base);
    let may_hold = |page: u64| presence.as_ref().map_or(true, |presence| presence.is_populated(page).unwrap_or(true));
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut at = start;
    while at < end {
        let page = page_size.align_down(at);
        let stop = end.min(page + page_size.bytes());
        if may_hold(page) {
            for first in (at..stop).step_by(COPY_BYTES as usize) {
                let bytes = COPY_BYTES.min(stop - first);
                match parts.last_mut() {
                    Some((last, so_far)) if *last + *so_far == first && *so_far + bytes <= COPY_BYTES => {
                        *so_far += bytes
                    }
                    _ => parts.push((first, bytes)),
                }
            }
        }
        at = stop;
    }
    parts
}

/// Runs of pages that are not all zeros, as byte ranges.
fn filled_runs(memory: &[u8], page_bytes: usize) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, page) in memory.chunks(page_bytes).enumerate() {
        let first = number * page_bytes;
        match runs.last_mut() {
            _ if page.iter().all(|byte| *byte == 0) => {}
            Some((_, end)) if *end == first => *end += page.len(),
            _ => runs.push((first, first + page.len())),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_leave_out_pages_of_zeros() {
        let mut memory = vec![0u8; 22];
        assert!(filled_runs(&memory, 4).is_empty() && filled_runs(&[], 4).is_empty());
        for at in [0, 7, 13, 21] {
            memory[at] = 1;
        }
        assert_eq!(filled_runs(&memory, 4), [(0, 8), (12, 16), (20, 22)]);
    }
}
