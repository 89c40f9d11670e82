// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that survives this process: a file's, which is removed when the memory is not needed any more.
//!
//! Where no file can be made, or there is no room for it, it is memory like any other.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

use trace::log::LoggedEvent;

/// Zeroed memory. A forked process does not have it.
pub struct Mapping {
    begin: *mut u8,
    bytes: usize,
    /// What was made sure to be there: using more may end the process where the file system is full.
    usable: usize,
    file: Option<PathBuf>,
}

// SAFETY: the memory belongs to the mapping alone, and no thread has a part in it that others have not.
unsafe impl Send for Mapping {}

/// What is made sure to be there at once.
const STEP: usize = 1 << 18;

impl Mapping {
    /// Memory of `bytes` bytes, of which `least` can be used.
    pub fn new(bytes: usize, least: usize, file: Option<&Path>) -> Mapping {
        file.and_then(|file| Mapping::of_file(bytes, least, file)).unwrap_or_else(|| Mapping::private(bytes))
    }

    fn of_file(bytes: usize, least: usize, path: &Path) -> Option<Mapping> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path).ok()?;
        let made = file.set_len(bytes as u64).is_ok();
        let begin = if made { map(bytes, libc::MAP_SHARED, file.as_raw_fd()) } else { None };
        let Some(begin) = begin else {
            let _ = std::fs::remove_file(path);
            return None;
        };
        // Removes the file where that is all.
        let mut mapping = Mapping { begin, bytes, usable: 0, file: Some(path.to_owned()) };
        mapping.use_up_to(least).then_some(mapping)
    }

    fn private(bytes: usize) -> Mapping {
        let begin = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let begin = begin.expect("there is memory for the buffers of a thread");
        Mapping { begin, bytes, usable: bytes, file: None }
    }

    /// Where it begins: at a page.
    pub fn begin(&self) -> *mut u8 {
        self.begin
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a file's.
    pub fn survives(&self) -> bool {
        self.file.is_some()
    }

    /// How many bytes may be used.
    pub fn usable_bytes(&self) -> usize {
        self.usable
    }

    /// Makes sure that more is there. Whether there is.
    pub fn use_more(&mut self) -> bool {
        self.usable < self.bytes && self.use_up_to(self.usable + STEP)
    }

    /// Gives back what is behind the first `bytes` bytes, if anything is. What is in there is lost.
    pub fn use_only(&mut self, bytes: usize) {
        let usable = bytes.next_multiple_of(page_bytes());
        if usable >= self.usable {
            return;
        }
        let advice = if self.survives() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: pages of the own mapping, which nobody uses.
        let failed = unsafe { libc::madvise(self.begin.add(usable).cast(), self.usable - usable, advice) };
        if failed == 0 {
            self.usable = usable;
        }
    }

    fn use_up_to(&mut self, usable: usize) -> bool {
        let usable = usable.next_multiple_of(page_bytes()).min(self.bytes);
        // SAFETY: pages of the own mapping; the call changes nothing in them.
        let failed = unsafe {
            libc::madvise(self.begin.add(self.usable).cast(), usable - self.usable, libc::MADV_POPULATE_WRITE)
        };
        if failed == 0 {
            self.usable = usable;
        }
        failed == 0
    }
}

/// Bytes of a base page of this host.
fn page_bytes() -> usize {
    // SAFETY: a plain question.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(STEP)
}

fn map(bytes: usize, flags: libc::c_int, descriptor: libc::c_int) -> Option<*mut u8> {
    // SAFETY: new memory, which is nobody's yet.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let begin = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0);
        if begin == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(begin, bytes, libc::MADV_DONTFORK);
        Some(begin.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the own mapping, of which no reference is left.
        unsafe { libc::munmap(self.begin.cast(), self.bytes) };
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Events that are not in the file yet, as `trace::log` has them.
pub struct EventLog {
    mapping: Mapping,
    /// Bytes of the lines.
    length: usize,
    is_full: bool,
}

const EVENT_LOG_BYTES: usize = 1 << 18;

impl EventLog {
    /// An empty one, in this file.
    pub fn new(path: &Path) -> EventLog {
        let mapping = Mapping::new(EVENT_LOG_BYTES, EVENT_LOG_BYTES, Some(path));
        EventLog { mapping, length: 0, is_full: false }
    }

    /// Whether an event had no room: noted events must go to the file.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adds an event.
    pub fn append(&mut self, event: &LoggedEvent) {
        let line = serde_json::to_vec(event).unwrap_or_default();
        let room = self.mapping.usable_bytes() - size_of::<u64>() - self.length;
        // Events after one that is missing would stand at wrong places.
        self.is_full |= line.len() > room;
        if self.is_full {
            return;
        }
        // SAFETY: there is room behind the length and the lines so far.
        unsafe {
            let to = self.mapping.begin().add(size_of::<u64>() + self.length);
            to.copy_from_nonoverlapping(line.as_ptr(), line.len());
        }
        self.publish(self.length + line.len());
    }

    /// Forgets all events: they are in the file.
    pub fn clear(&mut self) {
        self.is_full = false;
        self.publish(0);
    }

    fn publish(&mut self, length: usize) {
        self.length = length;
        compiler_fence(Ordering::Release);
        // SAFETY: the mapping begins with the length, at a page.
        unsafe { self.mapping.begin().cast::<u64>().write_volatile(length as u64) };
    }
}
