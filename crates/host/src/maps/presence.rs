//! [`Presence`]: whether single base pages of a process are present.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use policy::size::PageSize;

/// The open pagemap of a process, for queries of single pages.
pub struct Presence {
    pagemap: File,
    base: PageSize,
}

impl Presence {
    /// Opens the pagemap of a process, on a kernel with this base page.
    pub fn of(process: libc::pid_t, base: PageSize) -> io::Result<Presence> {
        Ok(Presence { pagemap: File::open(format!("/proc/{process}/pagemap"))?, base })
    }

    /// Whether the page that contains an address is in memory or swapped out (Documentation/admin-guide/mm/pagemap.rst, bits 63
    /// and 62).
    pub fn is_populated(&self, address: u64) -> io::Result<bool> {
        let mut entry = [0; size_of::<u64>()];
        self.pagemap.read_exact_at(&mut entry, address / self.base.bytes() * size_of::<u64>() as u64)?;
        Ok(u64::from_ne_bytes(entry) >> 62 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    #[test]
    fn memory_is_populated_once_it_is_written() {
        // Fresh memory from the kernel, written at one address; the other address is farther away than a leaf covers.
        let mut memory = vec![0u8; 64 << 20];
        memory[48 << 20] = 1;
        let base = Host::open("/").unwrap().page_sizes().base;
        let presence = Presence::of(std::process::id() as libc::pid_t, base).unwrap();
        let is_populated = |at: usize| presence.is_populated(std::ptr::from_ref(&memory[at]) as u64).unwrap();
        assert!(is_populated(48 << 20) && !is_populated(8 << 20));
        assert!(Presence::of(-1, base).is_err());
    }
}
