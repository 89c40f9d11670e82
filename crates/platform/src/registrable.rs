//! [`Registrable`]: memory that khugepaged registers.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use policy::size::PageSize;

/// Memory that khugepaged registers when it is advised, but that gives khugepaged no work: one aligned window, which stays
/// empty, and a page outside it. The kernel registers the memory only if a page was written (`__thp_vma_allowable_orders`,
/// mm/huge_memory.c, checks for the `anon_vma`).
pub struct Registrable {
    start: NonNull<libc::c_void>,
    bytes: NonZeroUsize,
}

impl Registrable {
    /// Maps the memory: one page less than two windows, so that it contains exactly one aligned window at any start address.
    pub fn map(pmd: PageSize, base: PageSize) -> io::Result<Registrable> {
        let (window_bytes, page_bytes) = (pmd.bytes() as usize, base.bytes() as usize);
        let bytes = NonZeroUsize::new(2 * window_bytes - page_bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap_anonymous(None, bytes, access, MapFlags::MAP_PRIVATE) }?;
        let begins_with_window = start.addr().get().is_multiple_of(window_bytes);
        let outside = if begins_with_window { bytes.get() - page_bytes } else { 0 };
        // SAFETY: the byte is inside the mapping, which was just made.
        unsafe { start.cast::<u8>().add(outside).write_volatile(1) };
        Ok(Registrable { start, bytes })
    }

    /// Advises the memory for THP (MADV_HUGEPAGE). If no size is enabled now, the advice is refused or has no effect.
    pub fn ask_for_huge_pages(&self) {
        // SAFETY: this advice changes no content.
        let _ = unsafe { madvise(self.start, self.bytes.get(), MmapAdvise::MADV_HUGEPAGE) };
    }
}

impl Drop for Registrable {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing else refers to it.
        let _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}
