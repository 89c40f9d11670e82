//! Fragments free memory into small blocks, as on a machine that has been up for weeks.
//!
//! Memory is fragmented where single unmovable pages are inside otherwise free blocks. Compaction moves the pages of programs,
//! but no page with another reference (mm/compaction.c, `isolate_migratepages_block`: "Migration will fail if an anonymous page
//! is pinned in memory"). So the free blocks are allocated as base pages, one page of each block is put into a pipe (vmsplice(2),
//! which takes a reference to the page and copies nothing), and all others are freed. The kernel merges them into blocks just
//! below the size in question. Only the pipes hold memory; they end with the process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use policy::size::PageSize;

use super::{Mapping, base_page};
use crate::random::mix;

/// A degree counts as reached within this distance, because each further pass would take all free memory again to gain a few
/// blocks.
const NEAR_RATIO: f64 = 0.005;
/// Bytes that are mapped and filled before the remaining free blocks are checked again.
const CHUNK_BYTES: u64 = 64 << 20;
/// The minimum memory that is left to other programs.
const MIN_RESERVE_BYTES: u64 = 256 << 20;
/// One in this many bytes of all memory is left to other programs.
const RESERVE_PART: u64 = 32;
/// The maximum number of passes. Other programs free and take memory in the meantime, so one pass may not be enough.
const MAX_PASSES: u32 = 3;
/// Number of pages put into a pipe by one call (UIO_MAXIOV, include/uapi/linux/uio.h).
const MAX_AT_ONCE: usize = 1024;
/// Bits 15 and 16 of /proc/kpageflags, COMPOUND_HEAD and COMPOUND_TAIL: the page is part of a large folio
/// (include/uapi/linux/kernel-page-flags.h).
const COMPOUND: u64 = 1 << 15 | 1 << 16;
/// The page frame number in an entry of /proc/PID/pagemap: bits 0 to 54 (Documentation/admin-guide/mm/pagemap.rst).
const FRAME: u64 = (1 << 55) - 1;
/// The bit of such an entry that says that the page is in memory. Without it, the page is being migrated or swapped out, and
/// the other bits have another meaning.
const PRESENT: u64 = 1 << 63;

/// How much of the free memory should be in small blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degree {
    /// Percentage of the free memory.
    pub percent: u32,
    /// Blocks below this size are small; few free blocks of this size or larger should remain.
    pub block: PageSize,
}

/// The free memory of the host, from /proc/buddyinfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// Bytes of all free memory.
    pub bytes: u64,
    /// Bytes in blocks of at least the size in question.
    pub whole_bytes: u64,
}

/// Why memory could not be fragmented.
#[derive(Debug, thiserror::Error)]
pub enum FragmentsError {
    /// Frame numbers are visible to privileged processes only.
    #[error("the kernel hides frame numbers (/proc/self/pagemap has none): run it as root")]
    Frames,
    /// The kernel's allocator does not have blocks of this size.
    #[error(
        "blocks of {block}: expected more than one base page ({base}) and at most {largest}, the allocator's largest block"
    )]
    Block {
        /// The requested block size.
        block: PageSize,
        /// The base page size.
        base: PageSize,
        /// The largest block size.
        largest: PageSize,
    },
    #[error("{path}: expected {expected}, found {found:?}")]
    Unexpected {
        path: &'static str,
        /// The expected content.
        expected: &'static str,
        /// The content that was found.
        found: String,
    },
    #[error("{step}: {source}; try a smaller part of the memory")]
    Refused { step: &'static str, source: io::Error },
}

/// Memory that stays fragmented as long as this value exists.
#[derive(Debug)]
pub struct Fragments {
    /// Both ends of the pipes that hold the pages.
    pipes: Vec<(OwnedFd, OwnedFd)>,
    /// Number of held pages.
    pub pages: u64,
    pub before: FreeMemory,
    /// Free memory after everything except the held pages was freed.
    pub after: FreeMemory,
}

impl FreeMemory {
    /// The current free memory, for blocks of a size.
    pub fn now(block: PageSize) -> Result<FreeMemory, FragmentsError> {
        let text = std::fs::read_to_string(BUDDYINFO)
            .map_err(|source| FragmentsError::Refused { step: "reading /proc/buddyinfo", source })?;
        FreeMemory::of(&text, base_page(), block)
    }

    fn of(buddyinfo: &str, base: PageSize, block: PageSize) -> Result<FreeMemory, FragmentsError> {
        let mut free = FreeMemory::default();
        let mut orders = 0;
        // Lines such as `Node 0, zone   Normal   1982   1305 ...`, one number for each order.
        for line in buddyinfo.lines() {
            for (order, word) in line.split_whitespace().skip(4).enumerate() {
                let count: u64 = word.parse().map_err(|_| FragmentsError::Unexpected {
                    path: BUDDYINFO,
                    expected: "a number for each order",
                    found: line.to_string(),
                })?;
                let bytes = count * (base.bytes() << order);
                free.bytes += bytes;
                free.whole_bytes += if base.bytes() << order >= block.bytes() { bytes } else { 0 };
                orders = orders.max(order);
            }
        }
        let largest = PageSize::new(base.bytes() << orders).unwrap_or(base);
        if block > base && block <= largest { Ok(free) } else { Err(FragmentsError::Block { block, base, largest }) }
    }

    /// The share of free memory in smaller blocks; 0 where nothing is free.
    pub fn fragmented_ratio(&self) -> f64 {
        match self.bytes {
            0 => 0.0,
            bytes => 1.0 - self.whole_bytes as f64 / bytes as f64,
        }
    }
}

const BUDDYINFO: &str = "/proc/buddyinfo";

impl Fragments {
    /// Fragments free memory to a degree, within half a percent and as far as possible: a reserve of a thirty-second of the
    /// machine's memory, at least 256M, is left alone. `after` shows the degree that was reached. After an error everything is
    /// freed.
    pub fn make(degree: Degree) -> Result<Fragments, FragmentsError> {
        let before = FreeMemory::now(degree.block)?;
        let goal_ratio = f64::from(degree.percent.min(100)) / 100.0 - NEAR_RATIO;
        let mut fragments = Fragments { pipes: Vec::new(), pages: 0, before, after: before };
        for _ in 0..MAX_PASSES {
            if fragments.after.fragmented_ratio() >= goal_ratio {
                break;
            }
            let filled = fill_free_memory(degree.block, 1.0 - goal_ratio)?;
            let pages = split(one_of_each_block(&filled, degree.block)?)?;
            fragments.pipes.extend(hold(&pages)?);
            fragments.pages += pages.len() as u64;
            drop(filled);
            fragments.after = FreeMemory::now(degree.block)?;
        }
        Ok(fragments)
    }
}

/// Fills memory until at most this share of the memory that will be free later is still in whole blocks. Memory that other
/// programs take and free in the meantime changes this share. The allocator takes base pages from small blocks first, so it
/// splits whole blocks only when nothing else is left.
fn fill_free_memory(block: PageSize, whole_ratio: f64) -> Result<Vec<Mapping>, FragmentsError> {
    let reserve_bytes = reserve_bytes()?;
    let refused = |step| move |source| FragmentsError::Refused { step, source };
    let large = large_folio()?;
    let mut filled = Vec::new();
    loop {
        let free = FreeMemory::now(block)?;
        let free_then_bytes = free.bytes + filled.len() as u64 * CHUNK_BYTES;
        let is_enough = free.whole_bytes as f64 <= free_then_bytes as f64 * whole_ratio;
        if is_enough || free.bytes < reserve_bytes + CHUNK_BYTES {
            return Ok(filled);
        }
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let chunk = Mapping::anonymous(CHUNK_BYTES as usize, access, MapFlags::MAP_PRIVATE).map_err(refused("mmap"))?;
        // Asks for large pages only where large blocks are free, because otherwise a fault would compact memory for one. A
        // kernel without THP supports neither advice.
        let is_large = large.map_or(Ok(false), has_blocks_of)?;
        let _ =
            if is_large { chunk.advise(MmapAdvise::MADV_HUGEPAGE) } else { chunk.advise(MmapAdvise::MADV_NOHUGEPAGE) };
        for page in chunk.addresses().step_by(base_page().bytes() as usize) {
            // SAFETY: the page belongs to this mapping and is writable, and no reference to it exists.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
        filled.push(chunk);
    }
}

/// The size that THP maps; `None` where the kernel has no THP.
fn large_folio() -> Result<Option<PageSize>, FragmentsError> {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let text = host::if_exists(host::content(PATH))
        .map_err(|source| FragmentsError::Refused { step: "reading hpage_pmd_size", source })?;
    let Some(text) = text else { return Ok(None) };
    let size = text.trim().parse().ok().and_then(|bytes| PageSize::new(bytes).ok());
    let found = text.trim().to_string();
    size.map(Some).ok_or(FragmentsError::Unexpected { path: PATH, expected: "a size in bytes", found })
}

/// Whether a chunk can be filled by folios of a size.
fn has_blocks_of(large: PageSize) -> Result<bool, FragmentsError> {
    match FreeMemory::now(large) {
        Ok(free) => Ok(free.whole_bytes >= CHUNK_BYTES.max(large.bytes())),
        Err(FragmentsError::Block { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn reserve_bytes() -> Result<u64, FragmentsError> {
    const PATH: &str = "/proc/meminfo";
    let text = std::fs::read_to_string(PATH)
        .map_err(|source| FragmentsError::Refused { step: "reading /proc/meminfo", source })?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let total: u64 = total.ok_or_else(|| FragmentsError::Unexpected {
        path: PATH,
        expected: "a line MemTotal",
        found: text.lines().next().unwrap_or_default().to_string(),
    })?;
    Ok((total * 1024 / RESERVE_PART).max(MIN_RESERVE_BYTES))
}

/// A base page that was allocated.
#[derive(Clone, Copy, Debug)]
struct Page<'seized> {
    mapping: &'seized Mapping,
    address: u64,
    frame: u64,
}

/// One page of each block from which pages were allocated, chosen at random.
fn one_of_each_block(filled: &[Mapping], block: PageSize) -> Result<Vec<Page<'_>>, FragmentsError> {
    let base = base_page();
    let order = block.order(base);
    let pagemap = open("/proc/self/pagemap", "opening /proc/self/pagemap")?;
    let mut chosen: BTreeMap<u64, (u64, Page)> = BTreeMap::new();
    for mapping in filled {
        let addresses = mapping.addresses();
        let mut entries = vec![0; (mapping.bytes() as u64 / base.bytes() * 8) as usize];
        pagemap
            .read_exact_at(&mut entries, addresses.start / base.bytes() * 8)
            .map_err(|source| FragmentsError::Refused { step: "reading /proc/self/pagemap", source })?;
        for (entry, address) in entries.chunks_exact(8).zip(addresses.step_by(base.bytes() as usize)) {
            let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
            if entry & PRESENT == 0 {
                continue;
            }
            let frame = entry & FRAME;
            if frame == 0 {
                return Err(FragmentsError::Frames);
            }
            let candidate = (mix(frame), Page { mapping, address, frame });
            let lowest = chosen.entry(frame >> order).or_insert(candidate);
            if candidate.0 < lowest.0 {
                *lowest = candidate;
            }
        }
    }
    Ok(chosen.into_values().map(|(_, page)| page).collect())
}

/// Splits the folios of pages, and returns the addresses of those that are single pages now. A folio with another reference
/// cannot be split, and is later freed whole.
fn split(pages: Vec<Page<'_>>) -> Result<Vec<u64>, FragmentsError> {
    let flags = open("/proc/kpageflags", "opening /proc/kpageflags")?;
    let mut single = Vec::new();
    for page in pages {
        page.mapping
            .split_folio_at(page.address, base_page())
            .map_err(|source| FragmentsError::Refused { step: "splitting a folio (MADV_COLD)", source })?;
        let mut word = [0; 8];
        flags
            .read_exact_at(&mut word, page.frame * 8)
            .map_err(|source| FragmentsError::Refused { step: "reading /proc/kpageflags", source })?;
        if u64::from_le_bytes(word) & COMPOUND == 0 {
            single.push(page.address);
        }
    }
    Ok(single)
}

fn open(path: &str, step: &'static str) -> Result<File, FragmentsError> {
    File::open(path).map_err(|source| FragmentsError::Refused { step, source })
}

/// Puts pages into as many pipes as necessary. Without CAP_SYS_RESOURCE a pipe holds at most /proc/sys/fs/pipe-max-size
/// (pipe(7)), with one page in each slot.
fn hold(pages: &[u64]) -> Result<Vec<(OwnedFd, OwnedFd)>, FragmentsError> {
    const PATH: &str = "/proc/sys/fs/pipe-max-size";
    let found = std::fs::read_to_string(PATH)
        .map_err(|source| FragmentsError::Refused { step: "reading pipe-max-size", source })?;
    let room: usize = found.trim().parse().map_err(|_| FragmentsError::Unexpected {
        path: PATH,
        expected: "a number of bytes",
        found: found.clone(),
    })?;
    let slots = (room / base_page().bytes() as usize).clamp(1, MAX_AT_ONCE);
    // Each pipe needs two descriptors.
    let refused = |step| move |error: nix::Error| FragmentsError::Refused { step, source: error.into() };
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).map_err(refused("getrlimit"))?;
    setrlimit(Resource::RLIMIT_NOFILE, max, max).map_err(refused("setrlimit"))?;
    pages.chunks(slots).map(|pages| hold_in_pipe(pages, slots)).collect()
}

/// Puts pages into a pipe of `slots` slots.
fn hold_in_pipe(pages: &[u64], slots: usize) -> Result<(OwnedFd, OwnedFd), FragmentsError> {
    let base_bytes = base_page().bytes() as usize;
    let refused = |step| move |error: nix::Error| FragmentsError::Refused { step, source: error.into() };
    let (reader, writer) = nix::unistd::pipe().map_err(refused("pipe"))?;
    let room = i32::try_from(slots * base_bytes).unwrap_or(i32::MAX);
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(room)).map_err(refused("a pipe with room (F_SETPIPE_SZ)"))?;
    let part = |page: &u64| libc::iovec { iov_base: *page as *mut libc::c_void, iov_len: base_bytes };
    let parts: Vec<libc::iovec> = pages.iter().map(part).collect();
    // SAFETY: the parts are valid, and each is a mapped page that exists longer than the call; the kernel does not read their
    // content.
    let taken = unsafe { libc::vmsplice(writer.as_raw_fd(), parts.as_ptr(), parts.len(), libc::SPLICE_F_NONBLOCK) };
    let refused = |source| Err(FragmentsError::Refused { step: "vmsplice", source });
    match usize::try_from(taken) {
        Err(_) => refused(io::Error::last_os_error()),
        Ok(taken) if taken != pages.len() * base_bytes => refused(io::ErrorKind::StorageFull.into()),
        Ok(_) => Ok((reader, writer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: &str = "Node 0, zone   Normal      4      0      0      0      0      0      0      0      2      3      1 \n\
                          Node 0, zone      DMA      4      0      0      0      0      0      0      0      0      0      0 \n";

    #[test]
    fn counts_free_memory_by_block_size() {
        let free = FreeMemory::of(BLOCKS, PageSize::K4, PageSize::M2).unwrap();
        assert_eq!(free.whole_bytes, (3 * 2 + 4) << 20);
        assert_eq!(free.bytes, free.whole_bytes + (2 << 20) + 8 * 4096);
        let fragmented = ((2 << 20) + 8 * 4096) as f64 / free.bytes as f64;
        assert!((free.fragmented_ratio() - fragmented).abs() < 1e-12);
        assert!(FreeMemory::default().fragmented_ratio() == 0.0);
    }

    #[test]
    fn blocks_that_the_allocator_does_not_have_are_refused() {
        for block in [PageSize::K4, PageSize::G1] {
            let error = FreeMemory::of(BLOCKS, PageSize::K4, block).unwrap_err().to_string();
            assert!(error.contains("at most 4M"), "{error}");
        }
        let error = FreeMemory::of("Node 0, zone Normal many", PageSize::K4, PageSize::M2).unwrap_err().to_string();
        assert!(error.contains("/proc/buddyinfo"), "{error}");
    }
}
