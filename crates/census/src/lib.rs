//! The census: how the memory of a process is really mapped. An [`Observer`] reads it from the kernel.
//!
//! # Where each fact comes from
//! * The mappings: `/proc/PID/maps`, or PROCMAP_QUERY for a part of the address space.
//! * Presence, leaf size, zero pages, file pages: ioctl PAGEMAP_SCAN (Linux 6.7), which any user may call for processes that the
//!   user may trace. PAGE_IS_HUGE means that a PMD leaf maps the memory, or a hugetlb page of any size; the size of the latter is
//!   the mapping's page size (PROCMAP_QUERY, or KernelPageSize in smaps before Linux 6.11) and is never guessed from its name.
//! * Folios behind base-page PTEs: frame numbers from pagemap (CAP_SYS_ADMIN) and `/proc/kpageflags` (root). They are not read
//!   where they provide no new information: behind PMD leaves, and for sizes of which the whole system has no anonymous folio
//!   (`hugepages-*kB/stats/nr_anon`, Linux 6.12, readable by every user). Nor are they read behind file pages and shared memory,
//!   to which no policy applies, unless [`Observer::with_file_folios`] requests it.
//! * On older kernels [`Observer::with_frames`] reads the same from pagemap, kpageflags and smaps ([`Source::Frames`]), for root and for
//!   small mappings. Otherwise the sums of `/proc/PID/smaps` are used there ([`Source::Smaps`]): bytes by leaf size are the same, but
//!   zero pages, folios and addresses inside a mapping are not visible.
//!
//! # Limits
//! A census of a running process is not a snapshot: the kernel is queried for one address range after the other. At a ptrace stop
//! of all threads it is a snapshot, except for changes that the kernel makes on its own (khugepaged, migration, reclaim).
//! Mappings of devices (VM_PFNMAP), the vdso and its data are not memory of the process and are left out; swapped pages are not
//! present.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accessed;
mod error;
pub mod explain;
mod file_systems;
mod folio;
mod frame_scan;
mod frames;
mod held_files;
pub mod inspect;
mod leaves;
pub mod page_sizes;
mod parallel;
mod process_census;
mod region;
mod scan;
mod scatter;
pub mod smaps;

use std::fs::File;
use std::io;
use std::io::BufReader;

use policy::census::Census;
use policy::size::PageSize;

pub use accessed::accessed;
pub use error::CensusError;
pub use held_files::{hugetlb_files, tmpfs_files};
pub use page_sizes::AnonymousFolios;
pub use region::{Area, Region};
pub use scatter::FrameScatter;
pub use smaps::SmapsEntry;

use page_sizes::FolioCounters;
use process_census::Process;
use scan::Scanner;

/// The most threads that scan one large process.
const MAX_THREADS: usize = 8;

/// The buffer for smaps in bytes. One call returns at most a page, or the text of one mapping if that is longer.
const SMAPS_PIECE: usize = 1 << 16;

/// How a census was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// PAGEMAP_SCAN; exact for every page.
    PagemapScan,
    /// pagemap and kpageflags page by page, with the leaves from the sums of smaps; exact for every page, or an error.
    Frames,
    /// The sums of smaps, on kernels before 6.7: no zero pages, no folios, no addresses.
    Smaps,
}

/// Makes censuses of processes. Opened once; each process is then opened separately.
pub struct Observer {
    base: PageSize,
    pmd: Option<PageSize>,
    source: Source,
    frame_flags: Option<File>,
    file_folios: bool,
    tlb_runs: bool,
    folio_counters: FolioCounters,
    file_systems: file_systems::FileSystems,
    threads: u64,
}

/// The census of one process, with addresses.
#[derive(Clone, Debug)]
pub struct ProcessCensus {
    /// PID of the process.
    pub pid: u32,
    /// Bytes by mapping.
    pub census: Census,
    /// The source of the census.
    pub source: Source,
    /// The anonymous folio sizes that exist in the system, where they were read. They are read when base pages of anonymous
    /// memory were found, and before a large process is scanned.
    pub folios_of_system: Option<AnonymousFolios>,
    /// The mappings with their present memory; empty where the source is [`Source::Smaps`].
    pub areas: Vec<Area>,
}

impl Observer {
    /// Opens the necessary files, as far as permitted: without root folios stay unknown.
    pub fn open() -> Result<Observer, CensusError> {
        let base = page_sizes::base_page();
        Ok(Observer {
            base,
            pmd: page_sizes::pmd_leaf()?,
            source: probe_source(base),
            frame_flags: permitted("/proc/kpageflags", |path| File::open(path))?.filter(|_| frames_visible(base)),
            file_folios: false,
            tlb_runs: false,
            folio_counters: FolioCounters::open(),
            file_systems: file_systems::FileSystems::new()?,
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS) as u64),
        })
    }

    /// The same observer without folios, as if opened without root.
    pub fn without_folios(mut self) -> Observer {
        self.frame_flags = None;
        self
    }

    /// The same observer, which also reads the folios of files and shared memory. The page cache is scattered over physical
    /// memory, so a small process costs about twice as much.
    pub fn with_file_folios(mut self) -> Observer {
        self.file_folios = true;
        self
    }

    /// The same observer, which reads the frame numbers of all anonymous base pages, even where no larger folio can be behind
    /// them: the frames may be contiguous nevertheless.
    pub fn with_tlb_runs(mut self) -> Observer {
        self.tlb_runs = true;
        self
    }

    /// The same observer, which uses smaps only, as on a kernel before 6.7.
    pub fn with_smaps_only(mut self) -> Observer {
        self.source = Source::Smaps;
        self
    }

    /// The same observer, which on kernels before 6.7 reads pagemap and kpageflags page by page, if this user may read them.
    pub fn with_frames(mut self) -> Observer {
        if self.source == Source::Smaps && self.frame_flags.is_some() {
            self.source = Source::Frames;
        }
        self
    }

    /// Whether the folios behind base pages are visible (root in the initial user namespace).
    pub fn sees_folios(&self) -> bool {
        self.frame_flags.is_some() && self.source != Source::Smaps
    }

    /// The source of censuses on this kernel.
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

    /// The census of a process, or of the process that a thread belongs to. At the exit stop of a thread (PTRACE_EVENT_EXIT) pass
    /// the thread's own TID: the first thread of its process may be gone already.
    pub fn process(&self, pid: u32) -> Result<ProcessCensus, CensusError> {
        if self.source == Source::Smaps {
            return self.by_smaps(pid, 0, u64::MAX);
        }
        let path = format!("/proc/{pid}/maps");
        let text = read_text(pid, &path)?;
        let vmas = host::maps::parse(&text, &path)?;
        if vmas.is_empty() {
            return Err(CensusError::NoAddressSpace { pid });
        }
        Process::at(self, pid)?.census(vmas, 0, u64::MAX)
    }

    /// The census of the addresses `start..end` of a process, for memory that is about to be unmapped. A folio that the range cuts
    /// counts as mapped in part. Fails with [`CensusError::NeedsPagemapScan`] on kernels before 6.7 where the range cuts a mapping.
    pub fn range(&self, pid: u32, start: u64, end: u64) -> Result<Census, CensusError> {
        self.range_with_places(pid, start, end).map(|census| census.census)
    }

    /// As [`Observer::range`], with addresses.
    pub fn range_with_places(&self, pid: u32, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let (start, end) = (self.base.align_down(start), self.base.align_up(end).unwrap_or(u64::MAX));
        if self.source == Source::Smaps {
            return self.by_smaps(pid, start, end);
        }
        let process = Process::at(self, pid)?;
        let vmas = process.vmas(start, end)?;
        process.census(vmas, start, end)
    }

    /// Reads smaps, including the flags of all mappings. Costs a walk over every page of the process.
    pub fn smaps(&self, pid: u32) -> Result<Vec<SmapsEntry>, CensusError> {
        let mut entries = Vec::new();
        self.each_smaps_entry(pid, |entry| entries.push(entry))?;
        Ok(entries)
    }

    fn each_smaps_entry(&self, pid: u32, report: impl FnMut(SmapsEntry)) -> Result<(), CensusError> {
        let path = format!("/proc/{pid}/smaps");
        let failed = |error| CensusError::io(pid, &path, error);
        let file = BufReader::with_capacity(SMAPS_PIECE, File::open(&path).map_err(failed)?);
        smaps::read(file, &path, failed, report)
    }

    /// A complete, aligned folio has at most PMD size, so it never crosses a multiple of this.
    fn chunk_alignment(&self) -> PageSize {
        self.pmd.unwrap_or(self.base)
    }

    fn by_smaps(&self, pid: u32, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let (mut census, mut mappings, mut is_cut, mut unknown) = (Census::default(), 0, false, None);
        self.each_smaps_entry(pid, |entry| {
            mappings += 1;
            if entry.vma.start < end && entry.vma.end > start {
                is_cut |= entry.vma.start < start || entry.vma.end > end;
                let shmem = match entry.vma.inode {
                    0 => Ok(false),
                    _ => self.file_systems.is_shmem(pid, entry.vma.device),
                };
                match shmem {
                    Ok(shmem) => entry.count(self.base, self.pmd, shmem, &mut census),
                    Err(error) => drop(unknown.get_or_insert(error)),
                }
            }
        })?;
        if let Some(error) = unknown {
            return Err(error);
        }
        match (mappings, is_cut) {
            (0, _) => return Err(CensusError::NoAddressSpace { pid }),
            (_, true) => return Err(CensusError::NeedsPagemapScan),
            (_, false) => {}
        }
        Ok(ProcessCensus { pid, census, source: Source::Smaps, folios_of_system: None, areas: Vec::new() })
    }
}

fn read_text(pid: u32, path: &str) -> Result<String, CensusError> {
    host::content(path).map_err(|error| CensusError::io(pid, path, error))
}

/// Opens a file; `None` where only root may open it, or this kernel does not have it.
fn permitted<T>(path: &str, open: impl FnOnce(&str) -> io::Result<T>) -> Result<Option<T>, CensusError> {
    match host::if_exists(open(path)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        opened => opened.map_err(|error| CensusError::Io { path: path.to_string(), error }),
    }
}

/// Whether pagemap shows frame numbers: it shows 0 to processes without CAP_SYS_ADMIN.
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

/// Tries PAGEMAP_SCAN on this process. Where `/proc` cannot be read at all, the census itself reports it.
fn probe_source(base: PageSize) -> Source {
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return Source::PagemapScan };
    match Scanner::new().scan(&pagemap, base.bytes(), 2 * base.bytes(), scan::HUGE, &mut Vec::new()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Source::Smaps,
        _ => Source::PagemapScan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_are_hidden_by_missing_rights_and_by_nothing_else() {
        let opened = |errno| permitted("kpageflags", |_| Err::<(), _>(io::Error::from_raw_os_error(errno)));
        for errno in [libc::EACCES, libc::EPERM, libc::ENOENT] {
            assert!(matches!(opened(errno), Ok(None)), "{errno}");
        }
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EIO] {
            assert!(opened(errno).unwrap_err().to_string().contains("kpageflags"), "{errno}");
        }
    }
}
