//! [`GuestMemory`]: the memory of this process that backs a guest.

use std::io;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags};
use policy::size::PageSize;

use super::KvmError;
use workloads::memory::{Mapping, memory_file};

/// What kind of memory backs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostBacking {
    /// Plain anonymous memory: the policy of this process decides.
    Policy,
    /// Anonymous memory with MADV_NOHUGEPAGE.
    Base,
    /// Anonymous memory with MADV_HUGEPAGE. The host's settings decide its page sizes.
    Advised,
    /// Pages of the hugetlb pool of this size.
    Hugetlb(PageSize),
    /// A shared memfd.
    Memfd,
}

/// A guest's memory in this process; unmapped when dropped. A guest that still used the memory then would only lose its pages,
/// because KVM follows the host's page tables. Shared references only make volatile reads of single words; a guest may write them
/// at the same time.
#[derive(Debug)]
pub struct GuestMemory(Mapping);

const PROTECTION: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

impl GuestMemory {
    /// Maps `bytes` bytes. If this process chooses the page size itself, the bytes begin at a multiple of `alignment`; under a
    /// policy they are one separate mapping, as a program would make it.
    pub fn map(backing: HostBacking, bytes: u64, alignment: PageSize) -> Result<GuestMemory, KvmError> {
        let refused = |source: io::Error| match backing {
            HostBacking::Hugetlb(size) => KvmError::Pool { size, pages: bytes.div_ceil(size.bytes()), source },
            _ => KvmError::Memory { bytes, source },
        };
        let length = usize::try_from(bytes).map_err(|_| refused(io::Error::from(nix::Error::ENOMEM)))?;
        let anonymous = |flags| Mapping::anonymous(length, PROTECTION, flags);
        let mapped = match backing {
            HostBacking::Policy => anonymous(MapFlags::MAP_PRIVATE),
            HostBacking::Base => advised(length, alignment, MmapAdvise::MADV_NOHUGEPAGE),
            HostBacking::Advised => advised(length, alignment, MmapAdvise::MADV_HUGEPAGE),
            HostBacking::Hugetlb(size) => anonymous(MapFlags::MAP_PRIVATE | hugetlb_flags(size)),
            HostBacking::Memfd => memory_file(bytes).and_then(|file| Mapping::of_file(&file, length, PROTECTION)),
        };
        mapped.map(GuestMemory).map_err(refused)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.addresses().start
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }

    /// The current word at offset `offset` in bytes. While a guest runs its value is indeterminate.
    ///
    /// # Panics
    /// Where `offset` is not a multiple of 8 or not inside.
    pub fn word(&self, offset: u64) -> u64 {
        // SAFETY: `place` is inside the mapping and aligned; the mapping lives as long as `self`.
        unsafe { self.place(offset).read_volatile() }
    }

    /// Writes the word at offset `offset` in bytes.
    ///
    /// # Panics
    /// As [`GuestMemory::word`].
    pub fn set_word(&mut self, offset: u64, value: u64) {
        // SAFETY: as above, and `&mut self`: nothing else in this process accesses it in the meantime.
        unsafe { self.place(offset).write_volatile(value) }
    }

    fn place(&self, offset: u64) -> *mut u64 {
        let word = size_of::<u64>() as u64;
        assert!(offset.is_multiple_of(word) && offset + word <= self.bytes(), "a word at {offset} of {}", self.bytes());
        // SAFETY: the offset is inside the mapping, as was just checked.
        unsafe { self.0.start().as_ptr().add(offset as usize).cast() }
    }
}

fn hugetlb_flags(size: PageSize) -> MapFlags {
    // MAP_HUGE_SHIFT of include/uapi/asm-generic/hugetlb_encode.h: log2 of the size in bits 26 to 31.
    let encoded = (size.bytes().trailing_zeros() << 26) as libc::c_int;
    MapFlags::MAP_HUGETLB | MapFlags::from_bits_retain(encoded)
}

/// Anonymous memory that begins at a multiple of `alignment`, with advice on its pages.
fn advised(length: usize, alignment: PageSize, advice: MmapAdvise) -> io::Result<Mapping> {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    let mapping = Mapping::aligned(length, alignment, PROTECTION, flags)?;
    match mapping.advise(advice) {
        // A kernel without transparent huge pages supports neither advice, and has base pages.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && advice == MmapAdvise::MADV_NOHUGEPAGE => {}
        result => result?,
    }
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_every_backing_is_zero_and_aligned_where_it_should_be() {
        for backing in [HostBacking::Policy, HostBacking::Base, HostBacking::Memfd] {
            let mut memory = GuestMemory::map(backing, 3 << 20, PageSize::M2).unwrap();
            assert_eq!((memory.bytes(), memory.word(0), memory.word((3 << 20) - 8)), (3 << 20, 0, 0));
            memory.set_word(4096, 7);
            assert_eq!(memory.word(4096), 7);
            if backing == HostBacking::Base {
                assert!(memory.address().is_multiple_of(2 << 20));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a word at 4096 of 4096")]
    fn a_word_outside_is_not_read() {
        GuestMemory::map(HostBacking::Policy, 4096, PageSize::M2).unwrap().word(4096);
    }

    #[test]
    fn a_failed_reservation_names_its_remedy() {
        let error = GuestMemory::map(HostBacking::Policy, 1 << 62, PageSize::M2).unwrap_err().to_string();
        assert!(error.contains("ulimit -v") && error.contains("--bytes"), "{error}");
        // No host has a pool of that many pages.
        let pool = HostBacking::Hugetlb(PageSize::new(2 << 20).unwrap());
        let error = GuestMemory::map(pool, 1 << 46, PageSize::M2).unwrap_err().to_string();
        assert!(error.contains("hugepages-2048kB/nr_hugepages") && error.contains("-p hugetlb-2m"), "{error}");
    }
}
