//! What a program can ask the kernel to do with memory that it has: collapse it, swap it out, protect parts of it.

use std::io;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mprotect};
use policy::size::PageSize;

use super::{Anonymous, MapError, Mapping};

impl Anonymous {
    /// Maps memory that begins at a multiple of `alignment`, in base pages: MADV_NOHUGEPAGE is in effect until [`Anonymous::collapse`].
    ///
    /// # Errors
    /// It cannot be mapped, or the kernel refuses the advice.
    pub fn map_in_base_pages(bytes: usize, alignment: PageSize) -> Result<Anonymous, MapError> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapped = Mapping::aligned(bytes, alignment, access, MapFlags::MAP_PRIVATE).and_then(|mapping| {
            match mapping.advise(MmapAdvise::MADV_NOHUGEPAGE) {
                // A kernel without transparent huge pages.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(mapping),
                advised => advised.map(|()| mapping),
            }
        });
        mapped.map(Anonymous).map_err(|source| MapError::Refused { bytes, source })
    }

    /// Collapses the memory into pages of PMD size (MADV_COLLAPSE, Linux 6.1).
    ///
    /// # Errors
    /// The kernel does not know the advice (EINVAL), or could not collapse all of it.
    pub fn collapse(&mut self) -> io::Result<()> {
        self.0.advise(MmapAdvise::MADV_HUGEPAGE)?;
        // SAFETY: the kernel copies the memory, and changes no content.
        match unsafe { libc::madvise(self.0.start().as_ptr().cast(), self.bytes(), libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks the kernel to swap the memory out (MADV_PAGEOUT, Linux 5.4). It does not report whether it did.
    ///
    /// # Errors
    /// The kernel does not know the advice (EINVAL).
    pub fn page_out(&mut self) -> io::Result<()> {
        // SAFETY: this advice changes no content.
        Ok(unsafe { madvise(self.0.start().cast(), self.bytes(), MmapAdvise::MADV_PAGEOUT) }?)
    }

    /// Makes every second strip of `strip_bytes` bytes, a multiple of the base page, read-only until the result is dropped. Each strip
    /// becomes a VMA.
    ///
    /// # Errors
    /// A strip cannot be protected, such as for too many VMAs. The others are then writable again.
    pub fn protect_strips(&mut self, strip_bytes: usize) -> io::Result<ReadOnlyStrips<'_>> {
        let mut strips = ReadOnlyStrips { memory: self, strip_bytes, protected: 0 };
        while strips.protected < strips.count() {
            strips.set(strips.protected, ProtFlags::PROT_READ)?;
            strips.protected += 1;
        }
        Ok(strips)
    }
}

/// Memory of which every second strip is read-only.
#[derive(Debug)]
pub struct ReadOnlyStrips<'a> {
    memory: &'a mut Anonymous,
    strip_bytes: usize,
    /// The number of strips that are read-only, from the first on.
    protected: usize,
}

impl ReadOnlyStrips<'_> {
    /// The number of strips that become read-only; a last strip that is not whole stays writable.
    pub fn count(&self) -> usize {
        let whole = self.memory.bytes().checked_div(self.strip_bytes).unwrap_or(0);
        whole.div_ceil(2)
    }

    /// Makes all strips writable again.
    ///
    /// # Errors
    /// A strip cannot be made writable.
    pub fn restore(mut self) -> io::Result<()> {
        self.restore_all()
    }

    fn restore_all(&mut self) -> io::Result<()> {
        while let Some(last) = self.protected.checked_sub(1) {
            self.set(last, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
            self.protected = last;
        }
        Ok(())
    }

    fn set(&self, strip: usize, access: ProtFlags) -> io::Result<()> {
        // SAFETY: `strip` is below `count`, so the range is in the mapping. `memory` is borrowed exclusively, so that nothing reads or
        // writes it until `restore_all` has made it writable.
        Ok(unsafe {
            let start = self.memory.0.start().add(2 * strip * self.strip_bytes);
            mprotect(start.cast(), self.strip_bytes, access)
        }?)
    }
}

impl Drop for ReadOnlyStrips<'_> {
    fn drop(&mut self) {
        let restored = self.restore_all();
        debug_assert!(restored.is_ok(), "mprotect of an own mapping: {restored:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::base_page;

    fn vmas_of(memory: &Anonymous) -> usize {
        let range = memory.address()..memory.address() + memory.bytes();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let starts = maps.lines().filter_map(|line| usize::from_str_radix(line.split_once('-')?.0, 16).ok());
        starts.filter(|start| range.contains(start)).count()
    }

    #[test]
    fn every_second_strip_is_read_only_until_it_is_restored() {
        let strip = 2 * base_page().bytes() as usize;
        let mut memory = Anonymous::map_in_base_pages(5 * strip, base_page()).unwrap();
        memory.slice_mut::<u64>().fill(7);
        let strips = memory.protect_strips(strip).unwrap();
        assert_eq!((strips.count(), vmas_of(strips.memory)), (3, 5));
        strips.restore().unwrap();
        assert_eq!(vmas_of(&memory), 1);
        memory.slice_mut::<u64>().iter_mut().for_each(|word| *word += 1);
        assert!(memory.slice::<u64>().iter().all(|word| *word == 8));
        drop(memory.protect_strips(strip).unwrap());
        memory.slice_mut::<u64>().fill(9);
    }

    #[test]
    fn content_survives_a_collapse_and_paging_out() {
        let bytes = 4 << 20;
        let mut memory = Anonymous::map_in_base_pages(bytes, PageSize::M2).unwrap();
        memory.slice_mut::<u64>().iter_mut().zip(0u64..).for_each(|(word, number)| *word = number);
        // Either may be refused: by a kernel without it, or where no large page is free.
        let _ = memory.collapse();
        let _ = memory.page_out();
        assert!(memory.slice::<u64>().iter().zip(0u64..).all(|(word, number)| *word == number));
    }
}
