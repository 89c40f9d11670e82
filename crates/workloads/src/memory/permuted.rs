//! Anonymous memory whose physical frames are in random order: neighbouring entries do not map neighbouring frames, so no TLB can
//! store several of them in one entry.

use std::io;
use std::mem;

use nix::sys::mman::{MapFlags, ProtFlags};

use super::{Anonymous, Mapping, base_page};
use crate::random::shuffle;

impl Anonymous {
    /// Populates the memory, and moves its pages to other addresses in random order. The frames stay the same, and so do their
    /// folios. Each page becomes a separate VMA.
    ///
    /// # Errors
    /// The error of mmap or mremap: ENOMEM if more pages are requested than `vm.max_map_count` allows.
    pub fn with_permuted_frames(mut self, seed: u64) -> io::Result<Anonymous> {
        let page = base_page().bytes() as usize;
        self.slice_mut::<u8>().iter_mut().step_by(page).for_each(|byte| *byte = 0);
        let pages = self.bytes().div_ceil(page);
        let target =
            Mapping::anonymous(pages * page, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE)?;
        let mut places: Vec<usize> = (0..pages).collect();
        shuffle(&mut places, seed);
        let from = self.0.start();
        // From the first move on, parts of the old addresses may be mapped by others.
        mem::forget(self);
        for (at, place) in places.into_iter().enumerate() {
            // SAFETY: both pages are inside mappings that only this function knows; the first one is moved once, and the second
            // one is not accessible and has no content.
            let moved = unsafe {
                let (old, new) = (from.add(at * page), target.start().add(place * page));
                libc::mremap(
                    old.as_ptr().cast(),
                    page,
                    page,
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    new.as_ptr().cast::<libc::c_void>(),
                )
            };
            if moved == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Anonymous(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permuted_memory_is_zero_and_can_be_written() {
        let bytes = 64 * base_page().bytes() as usize;
        let mut memory = Anonymous::map(bytes).unwrap().with_permuted_frames(3).unwrap();
        assert!(memory.slice::<u64>().iter().all(|word| *word == 0));
        memory.slice_mut::<u64>().fill(7);
        assert_eq!((memory.bytes(), memory.slice::<u64>()[bytes / 8 - 1]), (bytes, 7));
    }
}
