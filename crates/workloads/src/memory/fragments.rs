//! Free memory in small blocks, as on a machine that has been up for weeks.
//!
//! Memory is fragmented where single pages that cannot be moved lie in otherwise free blocks: compaction moves what programs
//! have, but no page that somebody else refers to (mm/compaction.c, `isolate_migratepages_block`: "Migration will fail if
//! an anonymous page is pinned in memory"). So pages are made of the free blocks, one page of each block is put into a
//! pipe (vmsplice(2), which refers to the page and copies nothing), and all others are given back. The kernel joins
//! them to blocks just below the size in question. The pipes are the only thing that is held; they go with the process.

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

/// A degree is reached when it is so near: each pass beyond it takes all free memory again for a few blocks.
const NEAR_RATIO: f64 = 0.005;
/// How much is mapped and filled before it is looked again whether that is enough.
const PIECE_BYTES: u64 = 64 << 20;
/// Memory that is left alone, at least: what runs meanwhile needs some.
const LEAST_RESERVE_BYTES: u64 = 256 << 20;
/// The share of all memory that is left alone, as one in so many.
const RESERVE_PART: u64 = 32;
/// Others free and take memory meanwhile, so one pass may not do.
const MOST_PASSES: u32 = 3;
/// Pages put into the pipe by one call (UIO_MAXIOV, include/uapi/linux/uio.h).
const MOST_AT_ONCE: usize = 1024;
/// Bits 15 and 16 of /proc/kpageflags, COMPOUND_HEAD and COMPOUND_TAIL: the page is part of a large folio
/// (include/uapi/linux/kernel-page-flags.h).
const COMPOUND: u64 = 1 << 15 | 1 << 16;
/// The page frame number in an entry of /proc/PID/pagemap: bits 0 to 54 (Documentation/admin-guide/mm/pagemap.rst).
const FRAME: u64 = (1 << 55) - 1;
/// The page of such an entry is in memory. That of another one is being migrated, or swapped out, and its bits say something else.
const PRESENT: u64 = 1 << 63;

/// Which part of the free memory shall be in blocks smaller than which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degree {
    /// Parts of a hundred.
    pub percent: u32,
    /// The size of a block of which there shall be few.
    pub block: PageSize,
}

/// The free memory of the host, from /proc/buddyinfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// All of it.
    pub bytes: u64,
    /// What lies in blocks of at least the size in question.
    pub whole_bytes: u64,
}

/// Why memory could not be fragmented.
#[derive(Debug, thiserror::Error)]
pub enum FragmentsError {
    /// Which pages lie in which block is told to privileged processes only.
    #[error("the kernel does not tell where pages lie (/proc/self/pagemap has no frame numbers): run it as root")]
    Frames,
    /// A block that the kernel's allocator does not have.
    #[error(
        "blocks of {block}: expected more than one base page ({base}) and at most {largest}, the allocator's largest block"
    )]
    Block {
        /// What was asked for.
        block: PageSize,
        /// The base page.
        base: PageSize,
        /// The largest block.
        largest: PageSize,
    },
    /// A file of the kernel's that says something else than expected.
    #[error("{path}: expected {expected}, found {found:?}")]
    Unexpected {
        /// The file.
        path: &'static str,
        /// What it should say.
        expected: &'static str,
        /// What it says.
        found: String,
    },
    /// The kernel refused something.
    #[error("{step}: {source}; a smaller part of the memory may do")]
    Refused {
        /// What was done.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// Fragmented memory, for as long as the value lives.
#[derive(Debug)]
pub struct Fragments {
    /// Both ends of the pipes that have the pages.
    pipes: Vec<(OwnedFd, OwnedFd)>,
    /// Pages that are held.
    pub pages: u64,
    /// Free memory before.
    pub before: FreeMemory,
    /// Free memory once all was given back but the pages.
    pub after: FreeMemory,
}

impl FreeMemory {
    /// What it is now, for blocks of a size.
    ///
    /// # Errors
    /// /proc/buddyinfo cannot be read, or has no blocks as large.
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

    /// The part of it that lies in smaller blocks; 0 where nothing is free.
    pub fn fragmented_ratio(&self) -> f64 {
        match self.bytes {
            0 => 0.0,
            bytes => 1.0 - self.whole_bytes as f64 / bytes as f64,
        }
    }
}

const BUDDYINFO: &str = "/proc/buddyinfo";

impl Fragments {
    /// Fragments free memory to a degree, within half a percent and as far as that goes: a reserve stays as it is, a thirty-second of the machine's
    /// memory and at least 256M. How far it went is in `after`.
    ///
    /// # Errors
    /// See [`FragmentsError`]; everything is given back then.
    pub fn make(degree: Degree) -> Result<Fragments, FragmentsError> {
        let before = FreeMemory::now(degree.block)?;
        let goal_ratio = f64::from(degree.percent.min(100)) / 100.0 - NEAR_RATIO;
        let mut fragments = Fragments { pipes: Vec::new(), pages: 0, before, after: before };
        for _ in 0..MOST_PASSES {
            if fragments.after.fragmented_ratio() >= goal_ratio {
                break;
            }
            let seized = seize(degree.block, 1.0 - goal_ratio)?;
            let pages = split(one_of_each_block(&seized, degree.block)?)?;
            fragments.pipes.extend(hold(&pages)?);
            fragments.pages += pages.len() as u64;
            drop(seized);
            fragments.after = FreeMemory::now(degree.block)?;
        }
        Ok(fragments)
    }
}

/// Fills memory until no more than this part of what will be free, when it is given back, is left in whole blocks. What others take
/// and free meanwhile counts. For a base page the allocator takes from small blocks first, so that it cuts whole ones only where there
/// is nothing else.
fn seize(block: PageSize, whole_ratio: f64) -> Result<Vec<Mapping>, FragmentsError> {
    let reserve_bytes = reserve_bytes()?;
    let refused = |step| move |source| FragmentsError::Refused { step, source };
    let large = large_folio()?;
    let mut seized = Vec::new();
    loop {
        let free = FreeMemory::now(block)?;
        let free_then_bytes = free.bytes + seized.len() as u64 * PIECE_BYTES;
        let is_enough = free.whole_bytes as f64 <= free_then_bytes as f64 * whole_ratio;
        if is_enough || free.bytes < reserve_bytes + PIECE_BYTES {
            return Ok(seized);
        }
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let piece = Mapping::anonymous(PIECE_BYTES as usize, access, MapFlags::MAP_PRIVATE).map_err(refused("mmap"))?;
        // Where no large block is free, a fault would compact memory for one. A kernel without THP knows neither advice.
        let is_large = large.map_or(Ok(false), has_blocks_of)?;
        let _ =
            if is_large { piece.advise(MmapAdvise::MADV_HUGEPAGE) } else { piece.advise(MmapAdvise::MADV_NOHUGEPAGE) };
        for page in piece.addresses().step_by(base_page().bytes() as usize) {
            // SAFETY: the page is this mapping's, writable, and nothing refers to it.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
        seized.push(piece);
    }
}

/// What THP maps, unless the kernel has none.
fn large_folio() -> Result<Option<PageSize>, FragmentsError> {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let text = host::if_there(host::content(PATH))
        .map_err(|source| FragmentsError::Refused { step: "reading hpage_pmd_size", source })?;
    let Some(text) = text else { return Ok(None) };
    let size = text.trim().parse().ok().and_then(|bytes| PageSize::new(bytes).ok());
    let found = text.trim().to_string();
    size.map(Some).ok_or(FragmentsError::Unexpected { path: PATH, expected: "a size in bytes", found })
}

/// Whether a piece can be filled by folios of a size.
fn has_blocks_of(large: PageSize) -> Result<bool, FragmentsError> {
    match FreeMemory::now(large) {
        Ok(free) => Ok(free.whole_bytes >= PIECE_BYTES.max(large.bytes())),
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
    Ok((total * 1024 / RESERVE_PART).max(LEAST_RESERVE_BYTES))
}

/// A base page that was seized.
#[derive(Clone, Copy, Debug)]
struct Page<'seized> {
    mapping: &'seized Mapping,
    address: u64,
    frame: u64,
}

/// A page in each block of which pages were seized; which page of the block it is, chance decides.
fn one_of_each_block(seized: &[Mapping], block: PageSize) -> Result<Vec<Page<'_>>, FragmentsError> {
    let base = base_page();
    let order = block.order(base);
    let pagemap = open("/proc/self/pagemap", "opening /proc/self/pagemap")?;
    let mut chosen: BTreeMap<u64, (u64, Page)> = BTreeMap::new();
    for mapping in seized {
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
            let least = chosen.entry(frame >> order).or_insert(candidate);
            if candidate.0 < least.0 {
                *least = candidate;
            }
        }
    }
    Ok(chosen.into_values().map(|(_, page)| page).collect())
}

/// Splits the folios of pages, and gives the addresses of those that stand alone now. A folio that somebody else
/// refers to cannot be split; it is given back whole.
fn split(pages: Vec<Page<'_>>) -> Result<Vec<u64>, FragmentsError> {
    let flags = open("/proc/kpageflags", "opening /proc/kpageflags")?;
    let mut alone = Vec::new();
    for page in pages {
        page.mapping
            .split_folio_at(page.address, base_page())
            .map_err(|source| FragmentsError::Refused { step: "splitting a folio (MADV_COLD)", source })?;
        let mut word = [0; 8];
        flags
            .read_exact_at(&mut word, page.frame * 8)
            .map_err(|source| FragmentsError::Refused { step: "reading /proc/kpageflags", source })?;
        if u64::from_le_bytes(word) & COMPOUND == 0 {
            alone.push(page.address);
        }
    }
    Ok(alone)
}

fn open(path: &str, step: &'static str) -> Result<File, FragmentsError> {
    File::open(path).map_err(|source| FragmentsError::Refused { step, source })
}

/// Puts pages into as many pipes as it takes. Without CAP_SYS_RESOURCE one has room for /proc/sys/fs/pipe-max-size
/// (pipe(7)), a page in each slot.
fn hold(pages: &[u64]) -> Result<Vec<(OwnedFd, OwnedFd)>, FragmentsError> {
    const PATH: &str = "/proc/sys/fs/pipe-max-size";
    let found = std::fs::read_to_string(PATH)
        .map_err(|source| FragmentsError::Refused { step: "reading pipe-max-size", source })?;
    let room: usize = found.trim().parse().map_err(|_| FragmentsError::Unexpected {
        path: PATH,
        expected: "a number of bytes",
        found: found.clone(),
    })?;
    let slots = (room / base_page().bytes() as usize).clamp(1, MOST_AT_ONCE);
    // Two descriptors for each pipe.
    let refused = |step| move |error: nix::Error| FragmentsError::Refused { step, source: error.into() };
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(refused("getrlimit"))?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(refused("setrlimit"))?;
    pages.chunks(slots).map(|some| hold_some(some, slots)).collect()
}

/// Puts pages into a pipe of so many slots.
fn hold_some(pages: &[u64], slots: usize) -> Result<(OwnedFd, OwnedFd), FragmentsError> {
    let base_bytes = base_page().bytes() as usize;
    let refused = |step| move |error: nix::Error| FragmentsError::Refused { step, source: error.into() };
    let (reader, writer) = nix::unistd::pipe().map_err(refused("pipe"))?;
    let room = i32::try_from(slots * base_bytes).unwrap_or(i32::MAX);
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(room)).map_err(refused("a pipe with room (F_SETPIPE_SZ)"))?;
    let part = |page: &u64| libc::iovec { iov_base: *page as *mut libc::c_void, iov_len: base_bytes };
    let parts: Vec<libc::iovec> = pages.iter().map(part).collect();
    // SAFETY: the parts are live, and each is a mapped page that outlives the call; the kernel reads none of them.
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
    fn free_memory_is_told_by_the_size_of_its_blocks() {
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
