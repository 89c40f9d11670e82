//! The memory of an arena: one writable and executable mapping, or a writable and an executable view of one
//! memfd.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, mprotect};
use policy::size::PageSize;

use workloads::memory::{self, Mapping};

/// The advice to the kernel about large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_HUGEPAGE.
    Huge,
    /// MADV_NOHUGEPAGE.
    NoHuge,
    /// No advice.
    None,
}

/// Why memory for code is not available.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    #[error("cannot {call} for generated code ({bytes} bytes): {source}; {remedy}")]
    Refused {
        /// The attempted action, as a verb phrase.
        call: &'static str,
        /// Length of the memory in bytes.
        bytes: usize,
        source: io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    #[error("there is no code generator for {0}; there is one for x86_64 and aarch64")]
    Architecture(&'static str),
}

/// A range of addresses owned by this value; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Reservation(Mapping);

impl Reservation {
    /// Reserves inaccessible memory that begins at a multiple of `alignment`, as private anonymous memory.
    pub fn new(bytes: usize, alignment: PageSize) -> Result<Reservation, JitError> {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        let reserved = Mapping::aligned(bytes, alignment, ProtFlags::PROT_NONE, flags);
        reserved
            .map(Reservation)
            .map_err(|source| refused("reserve addresses", bytes, source, "fewer bytes, or a higher `ulimit -v`"))
    }

    /// A view of a file at a new aligned address.
    pub fn of_file(file: &File, bytes: usize, alignment: PageSize, access: ProtFlags) -> Result<Reservation, JitError> {
        let mut reservation = Reservation::new(bytes, alignment)?;
        let mapped = reservation.0.replace_by(file, access);
        mapped.map_err(|source| refused("map a memfd", bytes, source, "check `ulimit -v`, or map it once"))?;
        Ok(reservation)
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    pub fn addresses(&self) -> Range<u64> {
        self.0.addresses()
    }

    /// Changes the protection of a part of the range.
    ///
    /// # Panics
    /// When the part is not inside the range.
    pub fn protect(&self, offset: usize, bytes: usize, access: ProtFlags) -> Result<(), JitError> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.0.bytes()), "{offset} + {bytes} is outside");
        const REMEDY: &str = "SELinux (execmem) or a sandbox may forbid writable and executable memory: map it twice";
        // SAFETY: the part is inside the mapping that this value owns. No reference into it exists, because arenas copy into it
        // and call into it only through pointers.
        unsafe { mprotect(self.start().add(offset).cast(), bytes, access) }
            .map_err(|errno| refused("change the protection of memory", bytes, errno.into(), REMEDY))
    }

    /// Gives the advice to the kernel.
    pub fn advise(&self, advice: Advice) -> Result<(), JitError> {
        let advice = match advice {
            Advice::Huge => MmapAdvise::MADV_HUGEPAGE,
            Advice::NoHuge => MmapAdvise::MADV_NOHUGEPAGE,
            Advice::None => return Ok(()),
        };
        self.0.advise(advice).map_err(|source| {
            refused("advise the kernel", self.0.bytes(), source, "a kernel without THP needs --advice none")
        })
    }
}

/// A memfd of `bytes` bytes.
pub(super) fn memory_file(bytes: usize) -> Result<File, JitError> {
    memory::memory_file(bytes as u64)
        .map_err(|source| refused("make a memfd", bytes, source, "it needs memory or swap for all of it"))
}

fn refused(call: &'static str, bytes: usize, source: io::Error, remedy: &'static str) -> JitError {
    JitError::Refused { call, bytes, source, remedy }
}
