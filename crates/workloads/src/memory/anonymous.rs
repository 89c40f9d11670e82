//! An owned private anonymous mapping, accessed as slices of plain numbers.

use std::io;

use nix::sys::mman::{MapFlags, ProtFlags};

use super::Mapping;

/// Number types for which every bit pattern is a valid value, so that fresh memory (all zeros) can be read as them.
pub trait Plain: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($number:ty),*) => { $(impl sealed::Sealed for $number {} impl Plain for $number {})* };
}
plain!(u8, u32, u64, f64);

/// Why memory could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("expected at least one byte to map, found 0")]
    Empty,
    #[error("cannot map {bytes} bytes of anonymous memory: {source}; fewer bytes, or a higher `ulimit -v`")]
    Refused {
        /// The requested size in bytes.
        bytes: usize,
        /// The error of mmap.
        source: io::Error,
    },
}

/// A private anonymous mapping (`mmap(MAP_PRIVATE | MAP_ANONYMOUS)`), unmapped when dropped.
///
/// Its memory is zero until it is written, and no page is present until it is touched.
#[derive(Debug)]
pub struct Anonymous(pub(super) Mapping);

impl Anonymous {
    /// Maps `bytes` bytes; the kernel rounds the mapping up to whole base pages. 0 bytes are refused.
    pub fn map(bytes: usize) -> Result<Anonymous, MapError> {
        if bytes == 0 {
            return Err(MapError::Empty);
        }
        let mapped = Mapping::anonymous(bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        mapped.map(Anonymous).map_err(|source| MapError::Refused { bytes, source })
    }

    /// Maps `bytes` bytes at an address where nothing else is mapped. Refused where something is mapped.
    pub fn map_at(address: usize, bytes: usize) -> Result<Anonymous, MapError> {
        let mapped = Mapping::anonymous_at(address, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE);
        mapped.map(Anonymous).map_err(|source| MapError::Refused { bytes, source })
    }

    /// The requested size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.0.start().addr().get()
    }

    /// The memory as numbers; a remainder that is smaller than a number is left out.
    pub fn slice<T: Plain>(&self) -> &[T] {
        // SAFETY: the mapping is page aligned, at least this long, initialised with zeros by the kernel, exists as long as
        // `self`, and every bit pattern is a `T`.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().cast(), self.bytes() / size_of::<T>()) }
    }

    /// The memory as writable numbers; a remainder that is smaller than a number is left out.
    pub fn slice_mut<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: as for `slice`, and `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr().cast(), self.bytes() / size_of::<T>()) }
    }

    /// Reads the number at `index` with a load that the compiler neither removes nor moves.
    ///
    /// # Panics
    /// When `index` is not inside the mapping.
    pub fn read_volatile<T: Plain>(&self, index: usize) -> T {
        let number = &self.slice::<T>()[index];
        // SAFETY: a reference is valid for reading.
        unsafe { std::ptr::read_volatile(number) }
    }

    /// Writes the number at `index` with a store that the compiler neither removes nor moves.
    ///
    /// # Panics
    /// When `index` is not inside the mapping.
    pub fn write_volatile<T: Plain>(&mut self, index: usize, value: T) {
        let number = &mut self.slice_mut::<T>()[index];
        // SAFETY: an exclusive reference is valid for writing.
        unsafe { std::ptr::write_volatile(number, value) }
    }

    /// Unmaps the memory now and reports errors; dropping it ignores them.
    pub fn unmap(self) -> io::Result<()> {
        self.0.unmap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps_line(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines()
            .find(|line| {
                let (from, rest) = line.split_once('-').unwrap();
                let to = rest.split_once(' ').unwrap().0;
                (usize::from_str_radix(from, 16).unwrap()..usize::from_str_radix(to, 16).unwrap()).contains(&address)
            })
            .map(str::to_string)
    }

    #[test]
    fn memory_is_zero_private_and_writable() {
        let mut memory = Anonymous::map(1 << 20).unwrap();
        assert!(memory.slice::<u64>().iter().all(|word| *word == 0));
        memory.slice_mut::<u64>()[7] = 0x0102_0304_0506_0708;
        assert_eq!(memory.slice::<u8>()[56..64].iter().map(|byte| u32::from(*byte)).sum::<u32>(), 36);
        memory.write_volatile(3, 9u8);
        assert_eq!(memory.read_volatile::<u32>(0), u32::from_ne_bytes([0, 0, 0, 9]));
        assert!(maps_line(memory.address()).unwrap().contains("rw-p"));
    }

    #[test]
    fn keeps_a_partial_page_and_leaves_out_partial_numbers() {
        let memory = Anonymous::map(4097).unwrap();
        assert_eq!((memory.bytes(), memory.slice::<u8>().len(), memory.slice::<u64>().len()), (4097, 4097, 512));
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(matches!(Anonymous::map(0), Err(MapError::Empty)));
        let refused = Anonymous::map(isize::MAX as usize).unwrap_err().to_string();
        assert!(refused.contains("Cannot allocate memory"), "{refused}");
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_offset_outside_panics_and_reads_nothing() {
        Anonymous::map(10).unwrap().read_volatile::<u8>(10);
    }

    #[test]
    fn dropping_gives_the_memory_back() {
        // Larger than the mappings of other tests, so that none of them takes the address in the meantime.
        let memory = Anonymous::map(1 << 30).unwrap();
        let middle = memory.address() + (1 << 29);
        assert!(maps_line(middle).is_some());
        memory.unmap().unwrap();
        assert!(maps_line(middle).is_none());
    }
}
