// SPDX-License-Identifier: GPL-2.0-or-later
//! Reading the program's memory.

/// Pages of the kernels whose map is read, and of all programs here.
pub const PAGE_BYTES: u64 = 4096;

/// Most bytes of a path (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4096;

/// Reads the program's memory, by its addresses.
pub trait GuestMemory {
    /// The bytes at an address, as many as can be read.
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

    /// The text at an address, up to its zero; what there is of it, where that cannot be read.
    fn text(&self, address: u64) -> Vec<u8> {
        let mut bytes = self.up_to_zero(address, PATH_BYTES);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        bytes
    }

    /// The text at an address, of at most so many bytes without its zero; `None` where it is longer or cannot be read.
    fn whole_text(&self, address: u64, most_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = self.up_to_zero(address, most_bytes + 1);
        let end = bytes.iter().position(|byte| *byte == 0).filter(|end| *end <= most_bytes)?;
        bytes.truncate(end);
        Some(bytes)
    }

    /// The bytes at an address up to a zero and some more, or as many pages as have so many, or as can be read.
    fn up_to_zero(&self, address: u64, most_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Page by page: what comes after the text may not be there.
        while bytes.len() < most_bytes {
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
    /// Where the program's address 0 is.
    pub base: u64,
}

impl GuestMemory for ProgramMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let host = address.wrapping_add(self.base);
        let own = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let other = libc::iovec { iov_base: host as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the kernel writes to `to` only, and looks itself whether the other side can be read.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const other, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }
}
