//! A mapping that is a value's own: aligned where that is asked for, and unmapped when dropped, also on the way out of
//! what fails half way.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use policy::size::PageSize;

/// Addresses that nobody else has. There is no way to their content but the pointer.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address only; who follows it answers for that.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory at an address of the kernel's choice.
    ///
    /// # Errors
    /// What mmap said; EINVAL for no bytes.
    pub fn anonymous(bytes: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(None, bytes, access, flags) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// Private anonymous memory at an address, where nothing else is.
    ///
    /// # Errors
    /// What mmap said: EEXIST where something is there, EINVAL for no bytes.
    pub fn anonymous_at(address: usize, bytes: usize, access: ProtFlags) -> io::Result<Mapping> {
        let invalid = || io::Error::from(nix::Error::EINVAL);
        let (bytes, at) = NonZeroUsize::new(bytes).zip(NonZeroUsize::new(address)).ok_or_else(invalid)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: the mapping replaces none (MAP_FIXED_NOREPLACE, Linux 4.17; an earlier kernel takes the address as a hint).
        let start = unsafe { mmap_anonymous(Some(at), bytes, access, flags) }?;
        let mapping = Mapping { start: start.cast(), bytes };
        if mapping.start.addr() == at { Ok(mapping) } else { Err(io::Error::from(nix::Error::EEXIST)) }
    }

    /// Anonymous memory, whole base pages of it, that begins at a multiple of `alignment`.
    ///
    /// # Errors
    /// As above, and what munmap said of the room that alignment takes; nothing stays mapped then.
    pub fn aligned(bytes: usize, alignment: PageSize, access: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        let alignment = alignment.bytes() as usize;
        let with_room = bytes.checked_add(alignment).ok_or(io::Error::from(nix::Error::ENOMEM))?;
        let mut mapping = Mapping::anonymous(with_room, access, flags)?;
        let at = mapping.start.addr().get();
        mapping.cut(at.next_multiple_of(alignment) - at, bytes)?;
        Ok(mapping)
    }

    /// A whole file, shared, at an address of the kernel's choice.
    ///
    /// # Errors
    /// What mmap said; EINVAL for no bytes.
    pub fn of_file(file: impl AsFd, bytes: usize, access: ProtFlags) -> io::Result<Mapping> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Mapping { start: start.cast(), bytes })
    }

    /// Puts a file, shared, in the place of what was mapped.
    ///
    /// # Errors
    /// What mmap said.
    pub fn replace_by(&mut self, file: impl AsFd, access: ProtFlags) -> io::Result<()> {
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: it replaces this value's own mapping; `&mut self`: nothing refers to it.
        unsafe { mmap(Some(self.start.addr()), self.bytes, access, flags, file, 0) }?;
        Ok(())
    }

    /// Keeps `bytes` bytes behind the first `skipped` ones.
    fn cut(&mut self, skipped: usize, bytes: usize) -> io::Result<()> {
        let kept = NonZeroUsize::new(bytes).ok_or(io::Error::from(nix::Error::EINVAL))?;
        let surplus = self.bytes.get() - skipped - bytes;
        // SAFETY: both ends lie inside the mapping, as the subtraction has just shown, and nobody knows them yet. What
        // is unmapped is no part of this value from then on.
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

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// The addresses.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.start.addr().get() as u64;
        start..start + self.bytes() as u64
    }

    /// Says which pages are wanted for all of it.
    ///
    /// # Errors
    /// What madvise said; EINVAL where the kernel does not know the advice.
    ///
    /// # Panics
    /// Advice on anything else than the size of pages.
    pub fn advise(&self, advice: MmapAdvise) -> io::Result<()> {
        assert!(matches!(advice, MmapAdvise::MADV_HUGEPAGE | MmapAdvise::MADV_NOHUGEPAGE), "{advice:?}");
        // SAFETY: this advice changes no content.
        Ok(unsafe { madvise(self.start.cast(), self.bytes(), advice) }?)
    }

    /// Splits the folio of which the base page at an address is a part, as far as the kernel can: advice that a part of
    /// a folio is cold (`madvise_cold_or_pageout_pte_range` in mm/madvise.c, since Linux 5.4) splits it, and whether it
    /// did is not told.
    ///
    /// # Errors
    /// What madvise said.
    ///
    /// # Panics
    /// An address outside the mapping.
    pub fn split_folio_at(&self, address: u64, base: PageSize) -> io::Result<()> {
        assert!(self.addresses().contains(&address), "{address:#x} is not in {:x?}", self.addresses());
        let page = self.start.with_addr(NonZeroUsize::new(address as usize).expect("inside a mapping"));
        // SAFETY: the page is this value's, and this advice changes no content.
        Ok(unsafe { madvise(page.cast(), base.bytes() as usize, MmapAdvise::MADV_COLD) }?)
    }

    /// Unmaps it now and says whether that succeeded; dropping does the same silently.
    ///
    /// # Errors
    /// What munmap said.
    pub fn unmap(self) -> io::Result<()> {
        std::mem::ManuallyDrop::new(self).release()
    }

    fn release(&self) -> io::Result<()> {
        // SAFETY: the mapping is this value's own, and the callers never use it again.
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

    /// Larger than what other tests map, so that none of them takes the place meanwhile.
    const LARGE: usize = 5 << 30;

    #[test]
    fn aligned_memory_is_all_there_is_of_it() {
        let alignment = PageSize::G1;
        let mapping = Mapping::aligned(LARGE, alignment, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        let Range { start, end } = mapping.addresses();
        assert!(start.is_multiple_of(alignment.bytes()) && end - start == LARGE as u64);
        assert!(is_mapped(start) && is_mapped(end - 1));
        drop(mapping);
        assert!(!is_mapped(start) && !is_mapped(start + (LARGE as u64) / 2));
    }

    #[test]
    fn what_fails_half_way_stays_mapped_nowhere() {
        let mut mapping = Mapping::anonymous(LARGE, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        let start = mapping.addresses().start;
        // munmap takes whole pages only.
        assert_eq!(mapping.cut(1 << 30, (1 << 30) + 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(mapping.addresses(), start + (1 << 30)..start + LARGE as u64, "what was cut is gone");
        drop(mapping);
        assert!(!is_mapped(start + (3 << 30)));
    }

    #[test]
    fn a_file_can_be_seen_twice() {
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let file = memory_file(1 << 20).unwrap();
        let first = Mapping::of_file(&file, 1 << 20, both).unwrap();
        let mut second = Mapping::aligned(1 << 20, PageSize::M2, ProtFlags::PROT_NONE, PRIVATE).unwrap();
        second.replace_by(&file, both).unwrap();
        assert!(second.addresses().start.is_multiple_of(2 << 20));
        // SAFETY: both are mapped, writable and as long, and nobody else has them.
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
