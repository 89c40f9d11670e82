//! [`Mapping`]: an owned mapping, aligned on request, and unmapped when dropped. A constructor that fails half way leaves
//! nothing mapped.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use policy::size::PageSize;

/// Addresses that belong to this value alone. Their content is accessible only through the pointer.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference only gives the address; code that dereferences it is responsible for that.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory at an address that the kernel chooses. Fails with EINVAL for 0 bytes.
    pub fn anonymous(bytes: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap_anonymous(None, bytes, access, flags) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// Private anonymous memory at an address where nothing else is mapped. Fails with EEXIST where something is mapped, and with
    /// EINVAL for 0 bytes.
    pub fn anonymous_at(address: usize, bytes: usize, access: ProtFlags) -> io::Result<Mapping> {
        let invalid = || io::Error::from(nix::Error::EINVAL);
        let (bytes, at) = NonZeroUsize::new(bytes).zip(NonZeroUsize::new(address)).ok_or_else(invalid)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: the mapping replaces nothing (MAP_FIXED_NOREPLACE, Linux 4.17; an earlier kernel takes the address as a hint).
        let start = unsafe { mmap_anonymous(Some(at), bytes, access, flags) }?;
        let mapping = Mapping { start: start.cast(), bytes };
        if mapping.start.addr() == at { Ok(mapping) } else { Err(io::Error::from(nix::Error::EEXIST)) }
    }

    /// Anonymous memory in whole base pages that begins at a multiple of `alignment`. After an error nothing stays mapped.
    pub fn aligned(bytes: usize, alignment: PageSize, access: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        let alignment = alignment.bytes() as usize;
        let with_room = bytes.checked_add(alignment).ok_or(io::Error::from(nix::Error::ENOMEM))?;
        let mut mapping = Mapping::anonymous(with_room, access, flags)?;
        let at = mapping.start.addr().get();
        mapping.trim(at.next_multiple_of(alignment) - at, bytes)?;
        Ok(mapping)
    }

    /// A whole file, mapped shared at an address that the kernel chooses. Fails with EINVAL for 0 bytes.
    pub fn of_file(file: impl AsFd, bytes: usize, access: ProtFlags) -> io::Result<Mapping> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// Replaces the mapping by a shared mapping of a file.
    pub fn replace_by(&mut self, file: impl AsFd, access: ProtFlags) -> io::Result<()> {
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: it replaces the mapping that this value owns; `&mut self`: no reference to it exists.
        unsafe { mmap(Some(self.start.addr()), self.bytes, access, flags, file, 0) }?;
        Ok(())
    }

    /// Keeps `bytes` bytes after the first `skipped` ones.
    fn trim(&mut self, skipped: usize, bytes: usize) -> io::Result<()> {
        let kept = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        let surplus = self.bytes.get() - skipped - bytes;
        // SAFETY: both ends are inside the mapping, as the subtraction has just shown, and nothing refers to them yet. The
        // unmapped parts do not belong to this value from then on.
        unsafe {
            if skipped > 0 {
                munmap(self.start.cast(), skipped)?;
                self.start = self.start.add(skipped);
                self.bytes = kept.saturating_add(surplus);
            }
            if surplus > 0 {
                munmap(self.start.add(bytes).cast(), surplus)?;
                self.bytes = kept;
            }
        }
        Ok(())
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub fn addresses(&self) -> Range<u64> {
        let start = self.start.addr().get() as u64;
        start..start + self.bytes() as u64
    }

    /// Advises the kernel about the page size of the whole mapping. Fails with EINVAL where the kernel does not support the advice.
    ///
    /// # Panics
    /// Advice on anything other than the page size.
    pub fn advise(&self, advice: MmapAdvise) -> io::Result<()> {
        assert!(matches!(advice, MmapAdvise::MADV_HUGEPAGE | MmapAdvise::MADV_NOHUGEPAGE), "{advice:?}");
        // SAFETY: this advice changes no content.
        Ok(unsafe { madvise(self.start.cast(), self.bytes(), advice) }?)
    }

    /// Splits the folio that contains the base page at an address, if the kernel can. MADV_COLD on part of a folio splits it
    /// (`madvise_cold_or_pageout_pte_range` in mm/madvise.c, since Linux 5.4); the kernel does not report whether it did.
    ///
    /// # Panics
    /// An address outside the mapping.
    pub fn split_folio_at(&self, address: u64, base: PageSize) -> io::Result<()> {
        assert!(self.addresses().contains(&address), "{address:#x} is not in {:x?}", self.addresses());
        let page = self.start.with_addr(NonZeroUsize::new(address as usize).expect("inside a mapping"));
        // SAFETY: the page belongs to this value, and this advice changes no content.
        Ok(unsafe { madvise(page.cast(), base.bytes() as usize, MmapAdvise::MADV_COLD) }?)
    }

    /// Unmaps it now and reports errors; dropping it ignores them.
    pub fn unmap(self) -> io::Result<()> {
        std::mem::ManuallyDrop::new(self).release()
    }

    fn release(&self) -> io::Result<()> {
        // SAFETY: this value owns the mapping, and the callers never use it again.
        Ok(unsafe { munmap(self.start.cast(), self.bytes()) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let released = self.release();
        debug_assert!(released.is_ok(), "munmap of an own mapping: {released:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memory_file;

    const PRIVATE: MapFlags = MapFlags::MAP_PRIVATE.union(MapFlags::MAP_NORESERVE);

    fn is_mapped(address: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            (u64::from_str_radix(from, 16).unwrap()..u64::from_str_radix(to, 16).unwrap()).contains(&address)
        })
    }

    /// Larger than the mappings of other tests, so that none of them takes the address in the meantime.
    const LARGE: usize = 5 << 30;

    #[test]
    fn aligned_memory_has_no_surplus() {
        let alignment = PageSize::G1;
        let mapping = Mapping::aligned(LARGE, alignment, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        let Range { start, end } = mapping.addresses();
        assert!(start.is_multiple_of(alignment.bytes()) && end - start == LARGE as u64);
        assert!(is_mapped(start) && is_mapped(end - 1));
        drop(mapping);
        assert!(!is_mapped(start) && !is_mapped(start + (LARGE as u64) / 2));
    }

    #[test]
    fn a_mapping_that_fails_half_way_is_unmapped() {
        let mut mapping = Mapping::anonymous(LARGE, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        let start = mapping.addresses().start;
        // munmap accepts whole pages only.
        assert_eq!(mapping.trim(1 << 30, (1 << 30) + 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(mapping.addresses(), start + (1 << 30)..start + LARGE as u64, "what was cut is gone");
        drop(mapping);
        assert!(!is_mapped(start + (3 << 30)));
    }

    #[test]
    fn a_file_can_be_mapped_twice() {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let file = memory_file(1 << 20).unwrap();
        let first = Mapping::of_file(&file, 1 << 20, both).unwrap();
        let mut second = Mapping::aligned(1 << 20, PageSize::M2, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        second.replace_by(&file, both).unwrap();
        assert!(second.addresses().start.is_multiple_of(2 << 20));
        // SAFETY: both are mapped, writable and long enough, and nothing else uses them.
        let seen = unsafe {
            first.start().add(5000).write_volatile(7);
            second.start().add(5000).read_volatile()
        };
        assert_eq!(seen, 7);
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        let anonymous = |bytes| Mapping::anonymous(bytes, ProtFlags::PROT_NONE, PRIVATE).unwrap_err().raw_os_error();
        assert_eq!((anonymous(0), anonymous(isize::MAX as usize)), (Some(libc::EINVAL), Some(libc::ENOMEM)));
        let aligned = Mapping::aligned(usize::MAX, PageSize::M2, ProtFlags::PROT_NONE, PRIVATE).unwrap_err();
        assert_eq!(aligned.raw_os_error(), Some(libc::ENOMEM));
    }
}
