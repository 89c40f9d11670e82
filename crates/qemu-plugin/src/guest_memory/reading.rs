// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the memory of the emulated program.

/// Page size of the kernel whose maps are read, and of all recorded programs.
pub const PAGE_BYTES: u64 = 4096;

/// The longest path in bytes (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4096;

/// Reads the program's memory by guest addresses.
pub trait GuestMemory {
    /// Reads the bytes at an address; returns how many could be read.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;

    /// The eight bytes at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then_some(u64::from_le_bytes(bytes))
    }

    /// The four bytes at an address.
    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read(address, &mut bytes) == 4).then_some(u32::from_le_bytes(bytes))
    }

    /// The string at an address, up to its terminating zero; shorter where memory is not readable.
    fn text(&self, address: u64) -> Vec<u8> {
        let mut bytes = self.up_to_zero(address, PATH_BYTES);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        bytes
    }

    /// The string at an address, of at most `max_bytes` bytes without its zero; `None` where it is longer or not readable.
    fn whole_text(&self, address: u64, max_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = self.up_to_zero(address, max_bytes + 1);
        let end = bytes.iter().position(|byte| *byte == 0).filter(|end| *end <= max_bytes)?;
        bytes.truncate(end);
        Some(bytes)
    }

    /// The bytes at an address, page by page, until a zero, `max_bytes` bytes or unreadable memory.
    fn up_to_zero(&self, address: u64, max_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Page by page, because the memory after the string may be unmapped.
        while bytes.len() < max_bytes {
            let at = address.wrapping_add(bytes.len() as u64);
            let mut part = vec![0; (PAGE_BYTES - at % PAGE_BYTES) as usize];
            let read = self.read(at, &mut part);
            bytes.extend(&part[..read]);
            if read < part.len() || part.contains(&0) {
                break;
            }
        }
        bytes
    }
}

/// The memory of the program in this process.
pub struct ProgramMemory {
    /// The host address of the program's address 0.
    pub base: u64,
}

impl GuestMemory for ProgramMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let host = address.wrapping_add(self.base);
        let own = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let other = libc::iovec { iov_base: host as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the kernel writes only to `to`, and checks itself whether the source is readable.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const other, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }
}
