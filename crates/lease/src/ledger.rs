//! [`Ledger`]: the settings that the lease wrote, in memory shared with its watchdog.
//!
//! The lease appends entries. An entry is complete before the count includes it, and is never changed afterwards. So the watchdog
//! sees every setting that may have been written, at whatever instruction the lease was killed.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::setting::Entry;

/// Maximum number of pairs of a setting and a value in one lease.
pub const MAX_ENTRIES: usize = 1024;

#[repr(C)]
struct Shared {
    count: AtomicUsize,
    entries: [Entry; MAX_ENTRIES],
}

/// The shared memory; unmapped when dropped.
pub struct Ledger {
    shared: NonNull<Shared>,
}

// SAFETY: in this process the mapping belongs to this value alone; `push` takes `&mut self`.
unsafe impl Send for Ledger {}
// SAFETY: `&Ledger` only reads entries below `count`, which never change again.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// An empty ledger.
    pub fn map() -> std::io::Result<Ledger> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0) };
        match NonNull::new(start.cast::<Shared>()) {
            Some(shared) if start != libc::MAP_FAILED => Ok(Ledger { shared }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: the mapping is zeroed, page aligned and exists as long as `self`; zero is a valid count.
        unsafe { &(*self.shared.as_ptr()).count }
    }

    /// The entries so far.
    pub fn entries(&self) -> &[Entry] {
        let count = self.count().load(Ordering::Acquire).min(MAX_ENTRIES);
        // SAFETY: the first `count` entries are initialised (see `push`) and no longer change.
        unsafe {
            let first = std::ptr::addr_of!((*self.shared.as_ptr()).entries).cast::<Entry>();
            std::slice::from_raw_parts(first, count)
        }
    }

    /// Appends an entry; `None` where the ledger is full.
    pub fn push(&mut self, entry: &Entry) -> Option<()> {
        let count = self.count().load(Ordering::Relaxed);
        if count >= MAX_ENTRIES {
            return None;
        }
        // SAFETY: the entry is inside the mapping, and it is not read before the count includes it.
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
        // SAFETY: the mapping belongs to this value and is not used again.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), size_of::<Shared>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::{File, Kind, Value};

    #[test]
    fn a_ledger_keeps_its_entries_until_it_is_full() {
        let mut ledger = Ledger::map().unwrap();
        let entry = |number: usize| Entry {
            file: File::new(format!("/f{number}").as_bytes()).unwrap(),
            kind: Kind::Value,
            before: Value::EMPTY,
            written: Value::EMPTY,
        };
        assert!(ledger.entries().is_empty());
        for number in 0..MAX_ENTRIES {
            ledger.push(&entry(number)).unwrap();
        }
        assert!(ledger.push(&entry(MAX_ENTRIES)).is_none());
        assert_eq!(ledger.entries().len(), MAX_ENTRIES);
        assert_eq!(ledger.entries()[MAX_ENTRIES - 1].file.as_bytes(), format!("/f{}", MAX_ENTRIES - 1).as_bytes());
    }
}
