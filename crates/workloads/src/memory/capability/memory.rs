//! [`Memory`]: a range of memory that lives as long as the process.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MRemapFlags, ProtFlags, mprotect, mremap};

/// Memory to which nothing refers except this value, and which is never unmapped.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Takes ownership of a range of memory.
    ///
    /// # Safety
    /// The range must be mapped, readable, and used by nothing else until the process ends.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Memory {
        Memory { start, bytes }
    }

    pub fn start(&self) -> u64 {
        self.start.addr().get() as u64
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads one byte of every `step` bytes.
    pub fn read(&self, step: usize) {
        for offset in (0..self.bytes).step_by(step) {
            // SAFETY: the offset is inside the range, which is readable.
            unsafe { self.start.add(offset).read_volatile() };
        }
    }

    /// Writes one byte of every `step` bytes.
    ///
    /// # Safety
    /// The range must be writable.
    pub unsafe fn write(&mut self, step: usize) {
        for offset in (0..self.bytes).step_by(step) {
            // SAFETY: the offset is inside the range, which is writable, as the caller guarantees.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }

    /// Advises the kernel about the whole range.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: none of these changes what the memory holds (madvise(2)).
        let returned = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice as i32) };
        if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes the first `bytes` bytes read-only.
    pub fn protect_head(&self, bytes: usize) -> io::Result<()> {
        assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        // SAFETY: the bytes belong to this value, and nothing writes to them from then on.
        Ok(unsafe { mprotect(self.start.cast(), bytes, ProtFlags::PROT_READ) }?)
    }

    /// Moves the memory to `target`, which it replaces.
    ///
    /// # Safety
    /// `target` must be a mapping of the same length that nothing refers to.
    pub unsafe fn move_to(&mut self, target: NonNull<u8>) -> io::Result<()> {
        let flags = MRemapFlags::MREMAP_MAYMOVE | MRemapFlags::MREMAP_FIXED;
        // SAFETY: the memory belongs to this value, and the caller guarantees the target.
        let moved = unsafe { mremap(self.start.cast(), self.bytes, self.bytes, flags, Some(target.cast())) }?;
        self.start = NonNull::new(moved.as_ptr().cast()).ok_or(io::Error::from(nix::Error::EFAULT))?;
        Ok(())
    }

    /// The address of the first byte of the aligned range inside `start..start + bytes`.
    pub fn aligned(start: NonNull<u8>, alignment: usize) -> NonNull<u8> {
        let address = start.addr().get().next_multiple_of(alignment);
        start.with_addr(NonZeroUsize::new(address).unwrap_or(NonZeroUsize::MIN))
    }
}

/// Advice that keeps the content of memory (madvise(2)).
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum Advice {
    HugePage = libc::MADV_HUGEPAGE,
    NoHugePage = libc::MADV_NOHUGEPAGE,
    PageOut = libc::MADV_PAGEOUT,
    PopulateRead = libc::MADV_POPULATE_READ,
    PopulateWrite = libc::MADV_POPULATE_WRITE,
    Collapse = libc::MADV_COLLAPSE,
}
