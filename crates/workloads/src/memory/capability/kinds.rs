//! Memory of each kind: mapped, aligned, and not touched yet.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use policy::capability::Kind;

use super::memory::Memory;
use super::{Probe, ProbeError};
use crate::memory::{base_page, memory_file};

const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// Maps the memory of a probe.
pub fn map(probe: &Probe) -> Result<Memory, ProbeError> {
    let private = MapFlags::MAP_PRIVATE | MapFlags::MAP_ANONYMOUS;
    let start = match probe.kind {
        Kind::Anonymous => fixed(probe, |at, bytes| anonymous(at, bytes, private)).map_err(ProbeError::new("mmap")),
        Kind::SharedAnonymous => {
            let shared = MapFlags::MAP_SHARED | MapFlags::MAP_ANONYMOUS;
            fixed(probe, |at, bytes| anonymous(at, bytes, shared)).map_err(ProbeError::new("mmap(MAP_SHARED)"))
        }
        Kind::Memfd => {
            let file = memory_file(probe.bytes as u64).map_err(ProbeError::new("memfd_create"))?;
            of_file(probe, &file, BOTH, MapFlags::MAP_SHARED)
        }
        Kind::Tmpfs => of_file(probe, given_file(probe)?, BOTH, MapFlags::MAP_SHARED),
        Kind::FileData => of_file(probe, given_file(probe)?, ProtFlags::PROT_READ, MapFlags::MAP_SHARED),
        Kind::FileText => {
            of_file(probe, given_file(probe)?, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC, MapFlags::MAP_PRIVATE)
        }
        Kind::Hugetlb => hugetlb(probe).map_err(ProbeError::new("mmap(MAP_HUGETLB)")),
        Kind::Heap => heap(probe).map_err(ProbeError::new("brk")),
        Kind::Stack => stack(probe).map_err(ProbeError::new("setrlimit(RLIMIT_STACK)")),
    }?;
    // SAFETY: each kind is mapped and readable, and nothing else knows the addresses.
    Ok(unsafe { Memory::new(start, probe.bytes) })
}

fn given_file(probe: &Probe) -> Result<&std::fs::File, ProbeError> {
    let missing =
        || io::Error::new(io::ErrorKind::InvalidInput, "expected a file of the length of the memory, found none");
    probe.file.as_ref().ok_or_else(missing).map_err(ProbeError::new("open"))
}

/// The alignment of the memory, which is the size of the largest leaf that could map it.
pub fn alignment(probe: &Probe) -> usize {
    probe.size.max(probe.pmd).bytes() as usize
}

/// Reserves aligned addresses without a page.
pub fn reserve(bytes: usize, alignment: usize) -> io::Result<NonNull<u8>> {
    let with_room = bytes.checked_add(alignment).and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let start = unsafe { mmap_anonymous(None, with_room, ProtFlags::PROT_NONE, flags) }?;
    Ok(Memory::aligned(start.cast(), alignment))
}

/// Maps memory over a part of a new reservation, so that its neighbours cannot merge with it.
fn fixed(
    probe: &Probe,
    map: impl FnOnce(NonNull<u8>, NonZeroUsize) -> io::Result<NonNull<u8>>,
) -> io::Result<NonNull<u8>> {
    let bytes = NonZeroUsize::new(probe.bytes).ok_or(io::ErrorKind::InvalidInput)?;
    map(reserve(probe.bytes, alignment(probe))?, bytes)
}

fn anonymous(at: NonNull<u8>, bytes: NonZeroUsize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: it replaces a part of a reservation that nothing refers to.
    let start = unsafe { mmap_anonymous(Some(at.addr()), bytes, BOTH, flags | MapFlags::MAP_FIXED) }?;
    Ok(start.cast())
}

fn of_file(probe: &Probe, file: impl AsFd, access: ProtFlags, flags: MapFlags) -> Result<NonNull<u8>, ProbeError> {
    let mapped = fixed(probe, |at, bytes| {
        // SAFETY: it replaces a part of a reservation that nothing refers to.
        let start = unsafe { mmap(Some(at.addr()), bytes, access, flags | MapFlags::MAP_FIXED, file, 0) }?;
        Ok(start.cast())
    });
    mapped.map_err(ProbeError::new("mmap of a file"))
}

/// Maps hugetlb pages. Their size is a part of the flags (mmap(2), MAP_HUGE_SHIFT), and the kernel aligns such a mapping
/// itself.
fn hugetlb(probe: &Probe) -> io::Result<NonNull<u8>> {
    let bytes = NonZeroUsize::new(probe.bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let size = (probe.size.bytes().trailing_zeros() as i32) << libc::MAP_HUGE_SHIFT;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_HUGETLB | MapFlags::from_bits_retain(size);
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    Ok(unsafe { mmap_anonymous(None, bytes, BOTH, flags) }?.cast())
}

/// Grows the heap by brk. The allocator knows nothing of that memory, and leaves it alone (sbrk(3)).
fn heap(probe: &Probe) -> io::Result<NonNull<u8>> {
    let alignment = alignment(probe);
    let grown = probe.bytes.checked_add(alignment).and_then(|bytes| isize::try_from(bytes).ok());
    let grown = grown.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: sbrk takes no pointers; a growing heap changes no memory that is in use.
    let start = unsafe { libc::sbrk(grown) };
    if start.addr() == usize::MAX {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Memory::aligned(start, alignment))
}

/// Grows the stack over an aligned range below the part in use, by one write below that range.
fn stack(probe: &Probe) -> io::Result<NonNull<u8>> {
    /// Room for the frames of this program, far more than they need.
    const IN_USE_BYTES: usize = 512 << 10;
    let here = 0u8;
    let top = std::ptr::from_ref(&here).addr() - IN_USE_BYTES;
    let alignment = alignment(probe);
    let start = (top - probe.bytes) & !(alignment - 1);
    let below = start - base_page().bytes() as usize;
    let needed = (std::ptr::from_ref(&here).addr() - below + IN_USE_BYTES) as u64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_STACK)?;
    if soft < needed.saturating_mul(2) {
        setrlimit(Resource::RLIMIT_STACK, needed.saturating_mul(2).min(hard), hard)?;
    }
    let pointer = |address| NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address));
    let (start, below) = pointer(start).zip(pointer(below)).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the address is below every frame of the only thread, and the kernel grows the stack to it. If the limit forbids that,
    // the process ends by SIGSEGV, which the examiner sees.
    unsafe { below.write_volatile(1) };
    Ok(start)
}
