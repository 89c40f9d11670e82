//! What the lease wrote, in memory that it shares with its watchdog.
//!
//! The lease appends; an entry is complete before the count says that it is there, and is never changed
//! afterwards. So the watchdog sees every setting that may have been written, at whatever instruction
//! the lease was killed.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::setting::Entry;

/// Most pairs of a setting and a value in one lease.
pub const MOST: usize = 1024;

#[repr(C)]
struct Shared {
    count: AtomicUsize,
    entries: [Entry; MOST],
}

/// The shared memory; unmapped when dropped.
pub struct Ledger {
    shared: NonNull<Shared>,
}

// SAFETY: the mapping belongs to this value alone in this process; `push` takes `&mut self`.
unsafe impl Send for Ledger {}
// SAFETY: `&Ledger` only reads entries below `count`, which never change again.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// An empty ledger.
    ///
    /// # Errors
    /// No memory.
    pub fn map() -> std::io::Result<Ledger> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0) };
        match NonNull::new(start.cast::<Shared>()) {
            Some(shared) if start != libc::MAP_FAILED => Ok(Ledger { shared }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: the mapping is zeroed, aligned to a page and lives as long as `self`; zero is a count.
        unsafe { &(*self.shared.as_ptr()).count }
    }

    /// The entries so far.
    pub fn entries(&self) -> &[Entry] {
        let count = self.count().load(Ordering::Acquire).min(MOST);
        // SAFETY: the first `count` entries are initialised (see `push`) and do not change any more.
        unsafe {
            let first = std::ptr::addr_of!((*self.shared.as_ptr()).entries).cast::<Entry>();
            std::slice::from_raw_parts(first, count)
        }
    }

    /// Appends an entry; `None` where the ledger is full.
    pub fn push(&mut self, entry: &Entry) -> Option<()> {
        let count = self.count().load(Ordering::Relaxed);
        if count >= MOST {
            return None;
        }
        // SAFETY: the slot lies inside the mapping, and nobody reads it while the count does not say so.
        unsafe {
            let first = std::ptr::addr_of_mut!((*self.shared.as_ptr()).entries).cast::<Entry>();
            first.add(count).write(*entry);
        }
        self.count().store(count.saturating_add(1), Ordering::Release);
        Some(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and is not used again.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::{File, Kind, Value};

    #[test]
    fn a_ledger_keeps_what_is_pushed_until_it_is_full() {
        let mut ledger = Ledger::map().unwrap();
        let entry = |number: usize| Entry {
            file: File::new(format!("/f{number}").as_bytes()).unwrap(),
            kind: Kind::Value,
            before: Value::EMPTY,
            written: Value::EMPTY,
        };
        assert!(ledger.entries().is_empty());
        for number in 0..MOST {
            ledger.push(&entry(number)).unwrap();
        }
        assert!(ledger.push(&entry(MOST)).is_none());
        assert_eq!(ledger.entries().len(), MOST);
        assert_eq!(ledger.entries()[MOST - 1].file.as_bytes(), format!("/f{}", MOST - 1).as_bytes());
    }
}
