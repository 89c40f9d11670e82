//! The memory of an arena: one writable and executable mapping, or a writable and an executable view of one
//! memfd.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap};
use nix::unistd::ftruncate;
use study::size::PageSize;

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
pub(super) struct Reservation {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping is not tied to the thread that made it.
unsafe impl Send for Reservation {}

impl Reservation {
    /// Reserves inaccessible memory that begins at a multiple of `alignment`, as private anonymous memory.
    pub fn new(bytes: usize, alignment: PageSize) -> Result<Reservation, JitError> {
        let slack = alignment.bytes() as usize;
        let refused = |errno| refused("reserve addresses", bytes, errno, "fewer bytes, or a higher `ulimit -v`");
        let wide = bytes.checked_add(slack).and_then(NonZeroUsize::new).ok_or_else(|| refused(nix::Error::ENOMEM))?;
        let whole = NonZeroUsize::new(bytes).ok_or_else(|| refused(nix::Error::EINVAL))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let first = unsafe { mmap_anonymous(None, wide, ProtFlags::PROT_NONE, flags) }.map_err(refused)?.cast::<u8>();
        let head = first.addr().get().next_multiple_of(slack) - first.addr().get();
        // SAFETY: `head` is at most `slack`, so both pieces lie in the mapping that was just made, and nobody
        // else knows of it; what remains between them is `bytes` long.
        unsafe {
            let start = first.add(head);
            for (from, length) in [(first, head), (start.add(bytes), slack - head)] {
                if length > 0 {
                    munmap(from.cast(), length).map_err(refused)?;
                }
            }
            Ok(Reservation { start, bytes: whole })
        }
    }

    /// A view of a file in a new aligned place.
    pub fn of_file(
        file: &OwnedFd,
        bytes: usize,
        alignment: PageSize,
        access: ProtFlags,
    ) -> Result<Reservation, JitError> {
        let reservation = Reservation::new(bytes, alignment)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        let address = Some(reservation.start.addr());
        // SAFETY: it replaces the reservation, which nothing refers to yet.
        unsafe { mmap(address, reservation.bytes, access, flags, file, 0) }
            .map_err(|errno| refused("map a memfd", bytes, errno, "check `ulimit -v`, or map it once"))?;
        Ok(reservation)
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The addresses.
    pub fn addresses(&self) -> std::ops::Range<u64> {
        let start = self.start.addr().get() as u64;
        start..start + self.bytes.get() as u64
    }

    /// Changes what may be done with a part of it.
    ///
    /// # Panics
    /// When the part is not inside.
    pub fn protect(&self, offset: usize, bytes: usize, access: ProtFlags) -> Result<(), JitError> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes.get()), "{offset} + {bytes} is outside");
        const REMEDY: &str = "SELinux (execmem) or a sandbox may forbid writable and executable memory: map it twice";
        // SAFETY: the part is inside this value's own mapping; no reference into it exists, because arenas
        // copy into it and call into it through pointers only.
        unsafe { mprotect(self.start.add(offset).cast(), bytes, access) }
            .map_err(|errno| refused("change the protection of memory", bytes, errno, REMEDY))
    }

    /// Says what is wanted.
    pub fn advise(&self, advice: Advice) -> Result<(), JitError> {
        let advice = match advice {
            Advice::Huge => MmapAdvise::MADV_HUGEPAGE,
            Advice::NoHuge => MmapAdvise::MADV_NOHUGEPAGE,
            Advice::None => return Ok(()),
        };
        // SAFETY: this advice changes no content.
        unsafe { madvise(self.start.cast(), self.bytes.get(), advice) }.map_err(|errno| {
            refused("advise the kernel", self.bytes.get(), errno, "a kernel without THP needs --advice none")
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and is not used again.
        let released = unsafe { munmap(self.start.cast(), self.bytes.get()) };
        debug_assert!(released.is_ok(), "munmap of an own mapping: {released:?}");
    }
}

/// A memfd of so many bytes.
pub(super) fn memory_file(bytes: usize) -> Result<OwnedFd, JitError> {
    let refused = |errno| refused("make a memfd", bytes, errno, "it needs memory or swap for all of it");
    let file = memfd_create(c"pagelab-jit", MFdFlags::MFD_CLOEXEC).map_err(refused)?;
    ftruncate(&file, bytes as i64).map_err(refused)?;
    Ok(file)
}

fn refused(call: &'static str, bytes: usize, errno: nix::Error, remedy: &'static str) -> JitError {
    JitError::Refused { call, bytes, source: errno.into(), remedy }
}
