//! [`FlagsReader`] reads `/proc/kpageflags`, and [`runs`] the frame numbers of `/proc/PID/pagemap`, in as few calls as
//! possible.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::folio::{FrameFlags, Run};

const ENTRY_BYTES: u64 = 8;
/// Bit of a pagemap entry: the page is present.
pub const PRESENT: u64 = 1 << 63;
/// Mask of a present page's entry: its frame number.
pub const FRAME: u64 = (1 << 55) - 1;

/// Reads `/proc/kpageflags`: single entries, or windows where all entries of a range will be needed.
pub struct FlagsReader<'a> {
    file: &'a File,
    expected: Range<u64>,
    window: Vec<u64>,
    window_start: u64,
    recent: Vec<(u64, u64)>,
}

impl<'a> FlagsReader<'a> {
    /// The most frames in one read.
    const WINDOW: u64 = 4096;
    /// Number of cached single entries, indexed by a hash of their frame.
    const RECENT: usize = 4096;

    pub fn new(file: &'a File) -> FlagsReader<'a> {
        let recent = vec![(u64::MAX, 0); FlagsReader::RECENT];
        FlagsReader { file, expected: 0..0, window: Vec::new(), window_start: 0, recent }
    }

    fn in_window(&self, frame: u64) -> Option<u64> {
        frame.checked_sub(self.window_start).and_then(|at| self.window.get(at as usize)).copied()
    }

    fn move_window(&mut self, frame: u64) -> io::Result<()> {
        self.window.resize((self.expected.end - frame).min(FlagsReader::WINDOW) as usize, 0);
        self.window_start = frame;
        let read = read_entries(self.file, frame, &mut self.window)?;
        self.window[read..].fill(0);
        Ok(())
    }
}

impl FrameFlags for FlagsReader<'_> {
    fn at(&mut self, frame: u64) -> io::Result<u64> {
        if let Some(flags) = self.in_window(frame) {
            return Ok(flags);
        }
        if self.expected.contains(&frame) {
            self.move_window(frame)?;
            return Ok(self.window[0]);
        }
        // Heads of folios are spaced at powers of two, so higher bits are mixed in.
        let index = ((frame ^ (frame >> 4) ^ (frame >> 9) ^ (frame >> 18)) as usize) % FlagsReader::RECENT;
        if self.recent[index].0 != frame {
            let mut entry = [0u64];
            read_entries(self.file, frame, &mut entry)?;
            self.recent[index] = (frame, entry[0]);
        }
        Ok(self.recent[index].1)
    }

    fn expect(&mut self, frames: Range<u64>) {
        self.expected = frames;
    }
}

/// Reports the runs of present pages in the pages `start..end` of a process. The frame is 0 where the kernel hides it.
pub fn runs(pagemap: &File, start: u64, end: u64, mut report: impl FnMut(Run) -> io::Result<()>) -> io::Result<()> {
    const CHUNK_PAGES: u64 = 16384;
    let mut buffer = vec![0u64; (end - start).min(CHUNK_PAGES) as usize];
    let mut open: Option<Run> = None;
    let mut page = start;
    while page < end {
        let wanted = (end - page).min(CHUNK_PAGES) as usize;
        let read = read_entries(pagemap, page, &mut buffer[..wanted])?;
        if read == 0 {
            break;
        }
        for entry in &buffer[..read] {
            let frame = entry & FRAME;
            let next = (entry & PRESENT != 0).then_some(Run { page, frame, pages: 1 });
            match (&mut open, next) {
                (Some(run), Some(_)) if run.frame + run.pages == frame => run.pages += 1,
                (_, next) => {
                    if let Some(run) = std::mem::replace(&mut open, next) {
                        report(run)?;
                    }
                }
            }
            page += 1;
        }
    }
    open.map_or(Ok(()), report)
}

/// Fills `entries` from entry `first` on; returns how many entries there were before the end of the file.
pub fn read_entries(file: &File, first: u64, entries: &mut [u64]) -> io::Result<usize> {
    // SAFETY: every u64 is a valid destination for any bytes, and the slice covers exactly its memory.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(entries.as_mut_ptr().cast::<u8>(), std::mem::size_of_val(entries)) };
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], first * ENTRY_BYTES + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled / ENTRY_BYTES as usize)
}
