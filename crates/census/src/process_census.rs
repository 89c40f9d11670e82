//! [`Process`] makes the census of one process: its present memory by leaf and folio size, from PAGEMAP_SCAN, pagemap and
//! kpageflags.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use host::maps::{self, Vma, VmaKind};
use policy::census::{Backing, Folio, Mapping};
use policy::inspect::TlbRuns;
use policy::size::PageSize;

use super::folio::{self, Orders};
use super::frame_scan::{self, FrameScanError, FrameScanner};
use super::page_sizes::AnonymousFolios;
use super::region::{self, Area, Region, Surroundings};
use super::scan::{self, Scanner};
use super::smaps::SmapsEntry;
use super::{CensusError, Observer, ProcessCensus, Source, frames, parallel, read_text};

/// A process whose census is being made.
pub struct Process<'a> {
    observer: &'a Observer,
    pid: u32,
    pagemap: File,
    maps: File,
    /// The anonymous folio sizes that exist in the whole system. Read when first needed.
    folios_of_system: OnceCell<Option<AnonymousFolios>>,
    /// Read when first needed, on kernels without PROCMAP_QUERY.
    smaps: OnceCell<Vec<SmapsEntry>>,
    /// The TLB runs found so far in the mapping that [`Process::present`] currently reads.
    tlb_runs: Cell<TlbRuns>,
    /// For each anonymous or shared-memory folio that is mapped in part, by its first frame: the bytes that no mapping read so
    /// far maps. Several mappings may map parts of the same folio.
    unmapped_remainder: RefCell<BTreeMap<u64, u64>>,
}

/// Present memory in one mapping.
pub struct Present {
    /// The memory in address order, with the leaf and folio sizes.
    pub regions: Vec<Region>,
    /// Memory by the size of the TLB entry that could hold it; empty where frame numbers were not read.
    pub tlb_runs: TlbRuns,
}

impl<'a> Process<'a> {
    /// Opens the files of the process in /proc.
    pub fn at(observer: &'a Observer, pid: u32) -> Result<Process<'a>, CensusError> {
        let open = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            File::open(&path).map_err(|error| CensusError::io(pid, &path, error))
        };
        Ok(Process {
            observer,
            pid,
            pagemap: open("pagemap")?,
            maps: open("maps")?,
            folios_of_system: OnceCell::new(),
            smaps: OnceCell::new(),
            tlb_runs: Cell::new(TlbRuns::EMPTY),
            unmapped_remainder: RefCell::default(),
        })
    }

    /// Guard regions inside a mapping (MADV_GUARD_INSTALL), in address order. Empty where the kernel does not report them (before
    /// Linux 6.15).
    pub fn guards(&self, start: u64, end: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        match Scanner::new().scan_for(&self.pagemap, start..end, scan::GUARD, 0, &mut found) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => Ok(Vec::new()),
            scanned => scanned.map(|()| found.iter().map(|guard| (guard.start, guard.end)).collect()),
        }
    }

    fn failed(&self, name: &str, error: io::Error) -> CensusError {
        CensusError::io(self.pid, &format!("/proc/{}/{name}", self.pid), error)
    }

    /// The mappings that overlap `start..end`.
    pub fn vmas(&self, start: u64, end: u64) -> Result<Vec<Vma>, CensusError> {
        let mut vmas = Vec::new();
        let mut at = start;
        while at < end {
            match maps::query(&self.maps, at) {
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

    /// The census of the parts of these mappings between `start` and `end`.
    pub fn census(self, vmas: Vec<Vma>, start: u64, end: u64) -> Result<ProcessCensus, CensusError> {
        let regions = self.present(&vmas, start, end)?.into_iter().map(|present| present.regions);
        let areas: Vec<Area> = vmas.into_iter().zip(regions).map(|(vma, regions)| Area { vma, regions }).collect();
        Ok(ProcessCensus {
            pid: self.pid,
            census: region::count(&areas),
            source: self.observer.source,
            folios_of_system: self.folios_of_system.into_inner().flatten(),
            areas,
        })
    }

    /// The present memory of each mapping, between `start` and `end`.
    pub fn present(&self, vmas: &[Vma], start: u64, end: u64) -> Result<Vec<Present>, CensusError> {
        let scanned = self.scan(vmas, start, end)?;
        let mut next = 0;
        let present = |vma: &Vma| {
            let regions = self.regions(vma, &region::within(vma, &scanned, &mut next).collect::<Vec<_>>())?;
            Ok(Present { regions, tlb_runs: self.tlb_runs.replace(TlbRuns::EMPTY) })
        };
        vmas.iter().map(present).collect()
    }

    fn scan(&self, vmas: &[Vma], start: u64, end: u64) -> Result<Vec<scan::PageRegion>, CensusError> {
        if self.observer.source == Source::Frames {
            return self.scan_frames(vmas, start, end);
        }
        // PAGEMAP_SCAN refuses addresses of the kernel, where [vsyscall] is.
        let user = vmas.split(|vma| vma.name == "[vsyscall]").next().unwrap_or_default();
        let mut found = Vec::new();
        for (from, to, file) in region::plan(user) {
            for region in self.scan_range(from.max(start), to.min(end), file)? {
                scan::push_region(&mut found, region);
            }
        }
        Ok(found)
    }

    /// The regions of the mappings between `start` and `end`, in the form of PAGEMAP_SCAN, on kernels without it.
    fn scan_frames(&self, vmas: &[Vma], start: u64, end: u64) -> Result<Vec<scan::PageRegion>, CensusError> {
        let Some(flags) = &self.observer.frame_flags else { return Err(CensusError::NeedsPagemapScan) };
        let scanner = FrameScanner { pagemap: &self.pagemap, flags, base: self.observer.base, pmd: self.observer.pmd };
        let mut found = Vec::new();
        for vma in vmas {
            // A mapping that is missing in smaps was unmapped after maps was read.
            let Some(entry) = self.smaps()?.iter().find(|entry| entry.vma.start == vma.start) else { continue };
            let mapping = frame_scan::Mapping {
                start: vma.start,
                end: vma.end,
                pmd_mapped_bytes: entry.pmd_mapped_bytes(),
                is_hugetlb: entry.hugetlb().is_some(),
            };
            let regions = scanner.scan(&mapping).map_err(|error| match error {
                FrameScanError::Io(error) => self.failed("pagemap", error),
                source => CensusError::UnknownLeaves { start: vma.start, source },
            })?;
            let in_range = regions.into_iter().map(|region| scan::PageRegion {
                start: region.start.max(start),
                end: region.end.min(end),
                ..region
            });
            in_range
                .filter(|region| region.start < region.end)
                .for_each(|region| scan::push_region(&mut found, region));
        }
        Ok(found)
    }

    /// The regions of a range. `file` requests the category of file pages.
    fn scan_range(&self, from: u64, to: u64, file: bool) -> Result<Vec<scan::PageRegion>, CensusError> {
        let wanted = scan::HUGE | scan::ZERO | if file { scan::FILE } else { 0 };
        let threads = if file { 1 } else { self.observer.threads };
        let pagemap = &self.pagemap;
        let parts = parallel::map(from, to, self.observer.chunk_alignment(), threads, |from, to| {
            let mut part = Vec::new();
            Scanner::new().scan(pagemap, from, to, wanted, &mut part).map(|()| part)
        });
        let mut found = Vec::new();
        for region in parts.map_err(|error| self.failed("pagemap", error))?.into_iter().flatten() {
            scan::push_region(&mut found, region);
        }
        Ok(found)
    }

    /// What [`region::classify`] needs to know about a mapping.
    fn surroundings<'b>(&self, vma: &'b Vma, hugetlb: Option<PageSize>) -> Result<Surroundings<'b>, CensusError> {
        Ok(Surroundings {
            vma,
            hugetlb,
            shmem: vma.inode != 0 && self.observer.file_systems.is_shmem(self.pid, vma.device)?,
            base: self.observer.base,
            pmd: self.observer.pmd,
        })
    }

    fn regions(&self, vma: &Vma, inside: &[scan::PageRegion]) -> Result<Vec<Region>, CensusError> {
        if inside.is_empty() || vma.kind() == VmaKind::Special {
            return Ok(Vec::new());
        }
        let around = self.surroundings(vma, self.hugetlb(vma, inside)?)?;
        let mut regions = Vec::new();
        for part in inside {
            if let Some(mapping) = region::classify(part.categories, &around) {
                self.push_cut_at_folios(Region { start: part.start, end: part.end, mapping }, &mut regions)?;
            }
        }
        Ok(regions)
    }

    /// The page size of a hugetlb mapping; `None` for other mappings. The kernel is queried only for a mapping that has a file
    /// and huge leaves. Every hugetlb mapping has a file, even a private anonymous one.
    fn hugetlb(&self, vma: &Vma, inside: &[scan::PageRegion]) -> Result<Option<PageSize>, CensusError> {
        if vma.inode == 0 || inside.iter().all(|part| part.categories & scan::HUGE == 0) {
            return Ok(None);
        }
        match maps::query(&self.maps, vma.start) {
            Ok(found) => {
                let size = found.filter(|(other, _)| other.start == vma.start).map(|(_, bytes)| bytes);
                Ok(size.filter(|bytes| *bytes > self.observer.base.bytes()).and_then(|bytes| PageSize::new(bytes).ok()))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.hugetlb_from_smaps(vma),
            Err(error) => Err(self.failed("maps", error)),
        }
    }

    fn hugetlb_from_smaps(&self, vma: &Vma) -> Result<Option<PageSize>, CensusError> {
        Ok(self.smaps()?.iter().find(|entry| entry.vma.start == vma.start).and_then(SmapsEntry::hugetlb))
    }

    /// The entries of smaps, read once.
    fn smaps(&self) -> Result<&[SmapsEntry], CensusError> {
        if let Some(entries) = self.smaps.get() {
            return Ok(entries);
        }
        let entries = self.observer.smaps(self.pid)?;
        Ok(self.smaps.get_or_init(|| entries))
    }

    /// Appends a region. Cuts it at the boundaries of its folios, where these can be determined.
    fn push_cut_at_folios(&self, region: Region, regions: &mut Vec<Region>) -> Result<(), CensusError> {
        let Mapping { backing, folio: Folio::Unknown, .. } = region.mapping else {
            region::push(regions, region);
            return Ok(());
        };
        let system = if backing == Backing::Anonymous { self.folios_of_system() } else { None };
        if system.is_some_and(AnonymousFolios::has_no_large_folio) && !self.observer.tlb_runs {
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
        for Resolved { regions: parts, tlb_runs, parts_of_folios } in
            found.map_err(|error| self.failed("pagemap", error))?
        {
            for part in parts {
                self.push_rescanned(part, regions)?;
            }
            self.tlb_runs.set(self.tlb_runs.get().merged(tlb_runs));
            let mut remainders = self.unmapped_remainder.borrow_mut();
            for (first_frame, size, bytes) in parts_of_folios {
                let remainder = remainders.entry(first_frame).or_insert(size.bytes());
                *remainder = remainder.saturating_sub(bytes);
            }
        }
        Ok(())
    }

    /// Appends a region of base-page PTEs whose folios were just read. Scans it once more if it has a folio larger than a base
    /// page.
    ///
    /// khugepaged may have collapsed the region after the scan that found the PTEs, even in a stopped process. If it did so
    /// before the frames were read, the new folio looks PTE-mapped. If it did so before their flags were read, the region has the
    /// folios to which its old frames belong now. The second scan finds the PMD leaf.
    fn push_rescanned(&self, region: Region, regions: &mut Vec<Region>) -> Result<(), CensusError> {
        let may_change = self.observer.source == Source::PagemapScan;
        let is_large = region.mapping.folio != Folio::Whole(self.observer.base);
        let Some(pmd) = self.observer.pmd.filter(|_| may_change && is_large) else {
            region::push(regions, region);
            return Ok(());
        };
        let mut scanned = Vec::new();
        Scanner::new()
            .scan(&self.pagemap, region.start, region.end, scan::HUGE, &mut scanned)
            .map_err(|error| self.failed("pagemap", error))?;
        for part in scanned {
            let is_collapsed = part.categories & scan::HUGE != 0;
            let leaf = Mapping { leaf: pmd, folio: Folio::Whole(pmd), ..region.mapping };
            let mapping = if is_collapsed { leaf } else { region.mapping };
            region::push(regions, Region { start: part.start, end: part.end, mapping });
        }
        Ok(())
    }

    /// Bytes of anonymous and shared-memory folios that are held although unmapped: the mappings read so far map only another
    /// part of the same folio.
    pub fn held_unmapped_bytes(&self) -> u64 {
        self.unmapped_remainder.borrow().values().sum()
    }

    /// The anonymous folio sizes that exist in the whole system, read once. `None` where the kernel does not report them.
    pub fn folios_of_system(&self) -> Option<&AnonymousFolios> {
        self.folios_of_system.get_or_init(|| self.observer.folio_counters.read()).as_ref()
    }
}

/// The result of cutting a range of a region at the boundaries of its folios.
struct Resolved {
    regions: Vec<Region>,
    tlb_runs: TlbRuns,
    /// For each part of an anonymous or shared-memory folio: the first frame of the folio, its size, and the bytes of the part.
    parts_of_folios: Vec<(u64, PageSize, u64)>,
}

/// Reads the frames and folios of a region of base-page PTEs, and cuts the region at the folio boundaries. Several threads share
/// a large region, so there can be several results, in address order.
fn read_folios(
    observer: &Observer,
    pagemap: &File,
    flags: &File,
    region: Region,
    orders: &Orders,
) -> io::Result<Vec<Resolved>> {
    let base = observer.base;
    parallel::map(region.start, region.end, observer.chunk_alignment(), observer.threads, |from, to| {
        let mut reader = frames::FlagsReader::new(flags);
        let (mut regions, mut tlb_runs, mut in_place_bytes) = (Vec::new(), TlbRuns::EMPTY, 0);
        let mut parts_of_folios = Vec::new();
        frames::runs(pagemap, from / base.bytes(), to / base.bytes(), |run| {
            tlb_runs.add(run.page, run.frame, run.pages, base);
            folio::resolve(run, orders, base, &mut reader, |page, pages, folio| {
                let start = page * base.bytes();
                let mapping = Mapping { folio, ..region.mapping };
                tlb_runs.misplaced_bytes += misplaced_bytes(folio, pages * base.bytes());
                let frame = run.frame + (page - run.page);
                if is_in_place(observer, mapping, page, frame) {
                    in_place_bytes += pages * base.bytes();
                }
                if let (Folio::Part(size), Backing::Anonymous | Backing::Shmem) = (folio, mapping.backing) {
                    let first_frame = frame & !(size.bytes() / base.bytes() - 1);
                    parts_of_folios.push((first_frame, size, pages * base.bytes()));
                }
                region::push(&mut regions, Region { start, end: start + pages * base.bytes(), mapping });
            })
        })?;
        let tlb_runs = TlbRuns { in_place_bytes: Some(in_place_bytes), ..tlb_runs };
        Ok(Resolved { regions, tlb_runs, parts_of_folios })
    })
}

/// Whether a mapping is of anonymous base pages, and the PFN and virtual page number are congruent modulo the pages of a PMD, as
/// after the split of a PMD-sized folio in place.
fn is_in_place(observer: &Observer, mapping: Mapping, page: u64, frame: u64) -> bool {
    let pages = observer.pmd.map_or(1, |pmd| pmd.bytes() / observer.base.bytes());
    let is_base_page = mapping.backing == Backing::Anonymous && mapping.folio == Folio::Whole(observer.base);
    is_base_page && pages > 1 && (page ^ frame) & (pages - 1) == 0
}

/// The bytes of a large folio that is mapped completely, but at a misaligned address, so that it counts as [`Folio::Part`]. 0 for
/// any other folio.
fn misplaced_bytes(folio: Folio, mapped_bytes: u64) -> u64 {
    match folio {
        Folio::Part(size) if size.bytes() == mapped_bytes => mapped_bytes,
        _ => 0,
    }
}
