//! The census: what really maps the memory of a process, read from the kernel.
//!
//! # Where each fact comes from
//! * The mappings: `/proc/PID/maps`, or PROCMAP_QUERY for a part of the address space.
//! * Presence, leaf size, zero pages, file pages: ioctl PAGEMAP_SCAN (Linux 6.7), which any user may
//!   call for processes that he may trace. PAGE_IS_HUGE says that a PMD leaf maps the memory, or a
//!   hugetlb page of any size; the size of the latter is the mapping's page size (PROCMAP_QUERY, or
//!   KernelPageSize in smaps before Linux 6.11), never guessed from its name.
//! * Folios behind base-page entries: frame numbers from pagemap (CAP_SYS_ADMIN) and
//!   `/proc/kpageflags` (root). They are not read where they cannot tell anything new: behind PMD
//!   leaves, and for sizes of which the whole system has no anonymous folio
//!   (`hugepages-*kB/stats/nr_anon`, Linux 6.12, readable by every user); nor behind file pages and
//!   shared memory, which no policy concerns, unless [`Observer::with_file_folios`] asks for them.
//! * On older kernels the sums of `/proc/PID/smaps` stand in ([`Source::Smaps`]): bytes by leaf size are
//!   the same, but zero pages, folios and places inside a mapping are not visible.
//!
//! # What it is not
//! A census of a running process is no snapshot: the kernel is asked about one stretch of addresses
//! after the other. At a ptrace stop of all threads it is one, except for what the kernel does on its
//! own (khugepaged, migration, reclaim). Mappings of devices (VM_PFNMAP), the vdso and its data are no
//! memory of the process and are left out; swapped pages are not present.

mod folio;
mod frames;
pub mod geometry;
pub mod maps;
mod parallel;
mod region;
mod scan;
mod shmem;
pub mod smaps;

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use study::census::{Backing, Census, Folio, Mapping};
use study::size::PageSize;

pub use geometry::AnonymousFolios;
pub use maps::{Vma, VmaKind};
pub use region::{Area, Region};
pub(crate) use scan::is_in_large_leaf;
pub use smaps::SmapsEntry;

use folio::Orders;
use geometry::FolioCounters;
use region::Surroundings;
use scan::Scanner;

/// Threads that walk one large process at most.
const MOST_THREADS: usize = 8;

/// How a census was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// PAGEMAP_SCAN; exact for every page.
    PagemapScan,
    /// The sums of smaps, on kernels before 6.7: no zero pages, no folios, no places.
    Smaps,
}

/// What cannot be read, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CensusError {
    /// There is no such process any more, or none that this user sees.
    #[error("there is no process {pid} any more, or /proc hides it (mount option hidepid): {path} is not there")]
    Gone {
        /// The process.
        pid: u32,
        /// The file that was to be read.
        path: String,
    },
    /// The process may not be looked at.
    #[error(
        "{path}: {error}; process {pid} may be looked at by root and by a user who may trace it (same user, \
         a program that this user may read, not setuid, /proc/sys/kernel/yama/ptrace_scope)"
    )]
    Forbidden {
        /// The process.
        pid: u32,
        /// The file that was to be read.
        path: String,
        /// What the kernel answered.
        error: io::Error,
    },
    /// The process has no memory: a kernel thread, or a thread that has already ended. Another thread of
    /// the same process may still have it.
    #[error("process {pid} has no address space: it is a kernel thread, or has ended (ask for a thread that lives)")]
    NoAddressSpace {
        /// The process or thread.
        pid: u32,
    },
    /// A file could not be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the kernel answered.
        error: io::Error,
    },
    /// A file does not look as it should.
    #[error("{path}: expected a line as in proc(5), found {line:?}; the kernel may be newer than this program")]
    Malformed {
        /// The file.
        path: String,
        /// The line.
        line: String,
    },
    /// A part of a mapping cannot be told from the rest without PAGEMAP_SCAN.
    #[error("a part of a mapping can be looked at since Linux 6.7 (PAGEMAP_SCAN); this kernel has only smaps")]
    NeedsPagemapScan,
}

impl CensusError {
    /// The error without the number of its process, for a reader who sees many runs of one program.
    pub fn of_any_process(&self) -> String {
        let number = match self {
            CensusError::Gone { pid, .. }
            | CensusError::Forbidden { pid, .. }
            | CensusError::NoAddressSpace { pid } => pid,
            _ => return self.to_string(),
        };
        let text = self.to_string();
        let text = text.replace(&format!("/proc/{number}/"), "/proc/PID/");
        text.replace(&format!("process {number}"), "the process")
    }

    pub(crate) fn malformed(path: &str, line: &str) -> CensusError {
        CensusError::Malformed { path: path.to_string(), line: line.to_string() }
    }

    fn io(pid: u32, path: &str, error: io::Error) -> CensusError {
        let gone = || !Path::new(&format!("/proc/{pid}")).exists();
        let path = path.to_string();
        match error.raw_os_error() {
            Some(libc::ESRCH) => CensusError::Gone { pid, path },
            Some(libc::ENOENT) if gone() => CensusError::Gone { pid, path },
            Some(libc::EACCES | libc::EPERM) => CensusError::Forbidden { pid, path, error },
            _ => CensusError::Io { path, error },
        }
    }
}

/// Looks at processes. Opened once; every process is then opened for itself.
pub struct Observer {
    base: PageSize,
    pmd: Option<PageSize>,
    source: Source,
    frame_flags: Option<File>,
    file_folios: bool,
    folio_counters: FolioCounters,
    shmem: shmem::ShmemDevices,
    threads: u64,
}

/// The census of one process, with its places.
#[derive(Clone, Debug)]
pub struct ProcessCensus {
    /// The process.
    pub pid: u32,
    /// Bytes by mapping.
    pub census: Census,
    /// How it was made.
    pub source: Source,
    /// Which anonymous folios exist in the system, where that was read; it is read when base pages of
    /// anonymous memory were found.
    pub folios_of_system: Option<AnonymousFolios>,
    /// The mappings with their present memory; empty where the source is [`Source::Smaps`].
    pub areas: Vec<Area>,
}

impl ProcessCensus {
    /// Leaves base pages out, by their addresses: those of a tracer, which are no memory of the program's. Where the
    /// census has no places ([`Source::Smaps`]) they stay in it.
    pub(crate) fn without(mut self, pages: &[u64], base: PageSize) -> ProcessCensus {
        if pages.is_empty() || self.areas.is_empty() {
            return self;
        }
        for page in pages {
            let holds = |area: &&mut Area| area.vma.start <= *page && *page < area.vma.end;
            if let Some(area) = self.areas.iter_mut().find(holds) {
                region::cut(&mut area.regions, *page, page + base.bytes());
            }
        }
        self.census = region::count(&self.areas);
        self
    }
}

impl Observer {
    /// Opens what is needed, as far as it is permitted: without root folios stay unknown.
    pub fn open() -> Observer {
        let base = geometry::base_page();
        let frame_flags = File::open("/proc/kpageflags").ok().filter(|_| frames_visible(base));
        Observer {
            base,
            pmd: geometry::pmd_leaf(),
            source: probe_source(base),
            frame_flags,
            file_folios: false,
            folio_counters: FolioCounters::open(),
            shmem: shmem::ShmemDevices::new(),
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MOST_THREADS) as u64),
        }
    }

    /// The same, but without looking at folios, as if opened without root.
    pub fn without_folios(mut self) -> Observer {
        self.frame_flags = None;
        self
    }

    /// The same, but looks at the folios of files and shared memory too. Page cache is scattered over
    /// physical memory, so that a small process costs about twice as much.
    pub fn with_file_folios(mut self) -> Observer {
        self.file_folios = true;
        self
    }

    /// The same, but with smaps only, as on a kernel before 6.7.
    pub fn with_smaps_only(mut self) -> Observer {
        self.source = Source::Smaps;
        self
    }

    /// Whether the folios behind base pages can be seen (root in the initial user namespace).
    pub fn sees_folios(&self) -> bool {
        self.frame_flags.is_some() && self.source == Source::PagemapScan
    }

    /// How a census is made here.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The base page of the running kernel.
    pub fn base_page(&self) -> PageSize {
        self.base
    }

    /// The size of a PMD leaf; `None` where the kernel has no THP.
    pub fn pmd_leaf(&self) -> Option<PageSize> {
        self.pmd
    }

    /// The census of a process, or of the process that a thread belongs to. At the exit stop of a thread
    /// (PTRACE_EVENT_EXIT) give the thread's own id: its process may already have lost its first thread.
    ///
    /// # Errors
    /// [`CensusError`]; the process may have ended, or may not be looked at.
    pub fn process(&self, pid: u32) -> Result<ProcessCensus, CensusError> {
        if self.source == Source::Smaps {
            return self.by_smaps(pid, 0, u64::MAX);
        }
        let path = format!("/proc/{pid}/maps");
        let text = read_text(pid, &path)?;
        let vmas = maps::parse(&text, &path)?;
        if vmas.is_empty() {
            return Err(CensusError::NoAddressSpace { pid });
        }
        Looking::at(self, pid)?.census(vmas, 0, u64::MAX)
    }

    /// The census of the addresses `start..end` of a process, for memory that is about to be unmapped. A
    /// folio that the range cuts counts as a part.
    ///
    /// # Errors
    /// As [`Observer::process`]; and [`CensusError::NeedsPagemapScan`] on kernels before 6.7, where the
    /// range cuts a mapping.
    pub fn range(&self, pid: u32, start: u64, end: u64) -> Result<Census, CensusError> {
        self.range_with_places(pid, start, end).map(|census| census.census)
    }

    /// The same, with places.
    ///
    /// # Errors
    /// As [`Observer::range`].
    pub fn range_with_places(&self, pid: u32, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let (start, end) = (self.base.align_down(start), self.base.align_up(end).unwrap_or(u64::MAX));
        if self.source == Source::Smaps {
            return self.by_smaps(pid, start, end);
        }
        let looking = Looking::at(self, pid)?;
        let vmas = looking.vmas(start, end)?;
        looking.census(vmas, start, end)
    }

    /// Reads smaps: the flags of all mappings. Costs a walk over every page of the process.
    ///
    /// # Errors
    /// As [`Observer::process`].
    pub fn smaps(&self, pid: u32) -> Result<Vec<SmapsEntry>, CensusError> {
        let path = format!("/proc/{pid}/smaps");
        smaps::parse(&read_text(pid, &path)?, &path)
    }

    /// A folio that is mapped whole begins at a multiple of its size and is at most of PMD size: it never
    /// reaches over a multiple of this.
    fn chunk_alignment(&self) -> PageSize {
        self.pmd.unwrap_or(self.base)
    }

    fn by_smaps(&self, pid: u32, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let entries = self.smaps(pid)?;
        if entries.is_empty() {
            return Err(CensusError::NoAddressSpace { pid });
        }
        let mut census = Census::default();
        for entry in entries.iter().filter(|entry| entry.vma.start < end && entry.vma.end > start) {
            if entry.vma.start < start || entry.vma.end > end {
                return Err(CensusError::NeedsPagemapScan);
            }
            entry.count(self.base, self.pmd, self.shmem.contain(pid, entry.vma.device), &mut census);
        }
        Ok(ProcessCensus { pid, census, source: Source::Smaps, folios_of_system: None, areas: Vec::new() })
    }
}

/// A process that is being looked at.
struct Looking<'a> {
    observer: &'a Observer,
    pid: u32,
    pagemap: File,
    maps: File,
    /// Read at the first need.
    folios_of_system: OnceCell<Option<AnonymousFolios>>,
    /// Read at the first need, on kernels without PROCMAP_QUERY.
    smaps: OnceCell<Vec<SmapsEntry>>,
}

impl<'a> Looking<'a> {
    fn at(observer: &'a Observer, pid: u32) -> Result<Looking<'a>, CensusError> {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            File::open(&path).map_err(|error| CensusError::io(pid, &path, error))
        };
        Ok(Looking {
            observer,
            pid,
            pagemap: open("pagemap")?,
            maps: open("maps")?,
            folios_of_system: OnceCell::new(),
            smaps: OnceCell::new(),
        })
    }

    fn failed(&self, name: &str, error: io::Error) -> CensusError {
        CensusError::io(self.pid, &format!("/proc/{}/{name}", self.pid), error)
    }

    /// The mappings that reach into `start..end`.
    fn vmas(&self, start: u64, end: u64) -> Result<Vec<Vma>, CensusError> {
        let mut vmas = Vec::new();
        let mut at = start;
        while at < end {
            match scan::query_vma(&self.maps, at) {
                Ok(Some((vma, _))) if vma.start < end => {
                    at = vma.end;
                    vmas.push(vma);
                }
                Ok(_) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => return self.vmas_from_text(start, end),
                Err(error) => return Err(self.failed("maps", error)),
            }
        }
        Ok(vmas)
    }

    fn vmas_from_text(&self, start: u64, end: u64) -> Result<Vec<Vma>, CensusError> {
        let path = format!("/proc/{}/maps", self.pid);
        let mut vmas = maps::parse(&read_text(self.pid, &path)?, &path)?;
        vmas.retain(|vma| vma.start < end && vma.end > start);
        Ok(vmas)
    }

    fn census(self, vmas: Vec<Vma>, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let scanned = self.scan(&vmas, start, end)?;
        let mut next = 0;
        let mut areas = Vec::with_capacity(vmas.len());
        for vma in vmas {
            let regions = self.regions(&vma, &scanned, &mut next)?;
            areas.push(Area { vma, regions });
        }
        Ok(ProcessCensus {
            pid: self.pid,
            census: region::count(&areas),
            source: Source::PagemapScan,
            folios_of_system: self.folios_of_system.into_inner().flatten(),
            areas,
        })
    }

    fn scan(&self, vmas: &[Vma], start: u64, end: u64) -> Result<Vec<scan::PageRegion>, CensusError> {
        let user = vmas.split(|vma| vma.name == "[vsyscall]").next().unwrap_or_default();
        let pagemap = &self.pagemap;
        let mut found = Vec::new();
        for (from, to, file) in region::plan(user) {
            let (from, to) = (from.max(start), to.min(end));
            let wanted = scan::HUGE | scan::ZERO | if file { scan::FILE } else { 0 };
            let threads = if file { 1 } else { self.observer.threads };
            let parts = parallel::map(from, to, self.observer.chunk_alignment(), threads, |from, to| {
                let mut part = Vec::new();
                Scanner::new().scan(pagemap, from, to, wanted, &mut part).map(|()| part)
            });
            for region in parts.map_err(|error| self.failed("pagemap", error))?.into_iter().flatten() {
                scan::push_region(&mut found, region);
            }
        }
        Ok(found)
    }

    fn regions(&self, vma: &Vma, scanned: &[scan::PageRegion], next: &mut usize) -> Result<Vec<Region>, CensusError> {
        let inside: Vec<scan::PageRegion> = region::within(vma, scanned, next).collect();
        if inside.is_empty() || vma.kind() == VmaKind::Special {
            return Ok(Vec::new());
        }
        let around = Surroundings {
            vma,
            hugetlb: self.hugetlb(vma, &inside)?,
            shmem: vma.inode != 0 && self.observer.shmem.contain(self.pid, vma.device),
            base: self.observer.base,
            pmd: self.observer.pmd,
        };
        let mut regions = Vec::new();
        for part in inside {
            if let Some(mapping) = region::classify(part.categories, &around) {
                self.with_folios(Region { start: part.start, end: part.end, mapping }, &mut regions)?;
            }
        }
        Ok(regions)
    }

    /// The page size of a hugetlb mapping. Only mappings with a file that show huge leaves are asked
    /// for: hugetlb mappings, private anonymous ones included, always have a file.
    fn hugetlb(&self, vma: &Vma, inside: &[scan::PageRegion]) -> Result<Option<PageSize>, CensusError> {
        if vma.inode == 0 || inside.iter().all(|part| part.categories & scan::HUGE == 0) {
            return Ok(None);
        }
        match scan::query_vma(&self.maps, vma.start) {
            Ok(found) => {
                let size = found.filter(|(other, _)| other.start == vma.start).map(|(_, bytes)| bytes);
                Ok(size.filter(|bytes| *bytes > self.observer.base.bytes()).and_then(|bytes| PageSize::new(bytes).ok()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.hugetlb_from_smaps(vma),
            Err(error) => Err(self.failed("maps", error)),
        }
    }

    fn hugetlb_from_smaps(&self, vma: &Vma) -> Result<Option<PageSize>, CensusError> {
        if self.smaps.get().is_none() {
            let entries = self.observer.smaps(self.pid)?;
            self.smaps.get_or_init(|| entries);
        }
        let entries = self.smaps.get().into_iter().flatten();
        Ok(entries.into_iter().find(|entry| entry.vma.start == vma.start).and_then(SmapsEntry::hugetlb))
    }

    /// Appends a region, cut by the folios behind it where they can be known.
    fn with_folios(&self, region: Region, regions: &mut Vec<Region>) -> Result<(), CensusError> {
        let Mapping { backing, folio: Folio::Unknown, .. } = region.mapping else {
            region::push(regions, region);
            return Ok(());
        };
        let system = if backing == Backing::Anonymous { self.folios_of_system() } else { None };
        if system.is_some_and(AnonymousFolios::none) {
            let mapping = Mapping { folio: Folio::Whole(self.observer.base), ..region.mapping };
            region::push(regions, Region { mapping, ..region });
            return Ok(());
        }
        let wanted = backing == Backing::Anonymous || self.observer.file_folios;
        let Some(flags) = self.observer.frame_flags.as_ref().filter(|_| wanted) else {
            region::push(regions, region);
            return Ok(());
        };
        let orders = system.map_or(Orders::Any, |folios| folios.orders(self.observer.base));
        let found = read_folios(self.observer, &self.pagemap, flags, region, &orders);
        found.map_err(|error| self.failed("pagemap", error))?.into_iter().for_each(|part| region::push(regions, part));
        Ok(())
    }

    fn folios_of_system(&self) -> Option<&AnonymousFolios> {
        self.folios_of_system.get_or_init(|| self.observer.folio_counters.read()).as_ref()
    }
}

/// Cuts a region by the folios behind it.
fn read_folios(
    observer: &Observer,
    pagemap: &File,
    flags: &File,
    region: Region,
    orders: &Orders,
) -> io::Result<Vec<Region>> {
    let base = observer.base;
    let parts = parallel::map(region.start, region.end, observer.chunk_alignment(), observer.threads, |from, to| {
        let mut reader = frames::FlagsReader::new(flags);
        let mut regions = Vec::new();
        frames::runs(pagemap, from / base.bytes(), to / base.bytes(), |run| {
            folio::resolve(run, orders, base, &mut reader, |page, pages, folio| {
                let start = page * base.bytes();
                let mapping = Mapping { folio, ..region.mapping };
                region::push(&mut regions, Region { start, end: start + pages * base.bytes(), mapping });
            })
        })?;
        Ok(regions)
    })?;
    Ok(parts.into_iter().flatten().collect())
}

fn read_text(pid: u32, path: &str) -> Result<String, CensusError> {
    let bytes = fs::read(path).map_err(|error| CensusError::io(pid, path, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether pagemap shows frame numbers: it hides them as 0 from those without CAP_SYS_ADMIN.
fn frames_visible(base: PageSize) -> bool {
    let touched = Box::new(1u8);
    let page = std::ptr::from_ref(touched.as_ref()) as u64 / base.bytes();
    let mut seen = false;
    let read = File::open("/proc/self/pagemap").and_then(|pagemap| {
        frames::runs(&pagemap, page, page + 1, |run| {
            seen = run.frame != 0;
            Ok(())
        })
    });
    read.is_ok() && seen
}

/// Tries PAGEMAP_SCAN on this process. Where `/proc` cannot be read at all, the census itself says so.
fn probe_source(base: PageSize) -> Source {
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return Source::PagemapScan };
    match Scanner::new().scan(&pagemap, base.bytes(), 2 * base.bytes(), scan::HUGE, &mut Vec::new()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Source::Smaps,
        _ => Source::PagemapScan,
    }
}
