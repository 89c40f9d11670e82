//! The memory of an arena: one writable and executable mapping, or a writable and an executable view of one
//! memfd.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, mprotect};
use policy::size::PageSize;

use crate::memory::{self, Mapping};

/// What is said to the kernel about large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// MADV_HUGEPAGE.
    Huge,
    /// MADV_NOHUGEPAGE.
    NoHuge,
    /// Nothing.
    None,
}

/// Memory for code that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum JitError {
    /// The kernel refused a call.
    #[error("cannot {call} for generated code ({bytes} bytes): {source}; {remedy}")]
    Refused {
        /// What was to be done.
        call: &'static str,
        /// For how much.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// There is no generator for this processor.
    #[error("there is no code generator for {0}; there is one for x86_64 and aarch64")]
    Architecture(&'static str),
}

/// A range of addresses that is this value's own. Dropped, it is unmapped.
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

    /// A view of a file in a new aligned place.
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

    /// The addresses.
    pub fn addresses(&self) -> Range<u64> {
        self.0.addresses()
    }

    /// Changes what may be done with a part of it.
    ///
    /// # Panics
    /// When the part is not inside.
    pub fn protect(&self, offset: usize, bytes: usize, access: ProtFlags) -> Result<(), JitError> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.0.bytes()), "{offset} + {bytes} is outside");
        const REMEDY: &str = "SELinux (execmem) or a sandbox may forbid writable and executable memory: map it twice";
        // SAFETY: the part is inside this value's own mapping; no reference into it exists, because arenas
        // copy into it and call into it through pointers only.
        unsafe { mprotect(self.start().add(offset).cast(), bytes, access) }
            .map_err(|errno| refused("change the protection of memory", bytes, errno.into(), REMEDY))
    }

    /// Says what is wanted.
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

/// A memfd of so many bytes.
pub(super) fn memory_file(bytes: usize) -> Result<File, JitError> {
    memory::memory_file(bytes as u64)
        .map_err(|source| refused("make a memfd", bytes, source, "it needs memory or swap for all of it"))
}

fn refused(call: &'static str, bytes: usize, source: io::Error, remedy: &'static str) -> JitError {
    JitError::Refused { call, bytes, source, remedy }
}
