//! [`Memory`]: a process's memory from /proc/PID/status at each examination. It has the peaks, and how much of the peak was
//! examined.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use census::{Area, ProcessCensus, Source};
use host::if_exists;
use host::maps::Vma;
use policy::census::Census;
use policy::ranges::Ranges;
use policy::remains::Remains;
use policy::removal::Unwatched;
use policy::verdict::Peak;
use study::metric::{Observation, names};

/// Differences up to this many bytes for a process are ignored. The kernel sums its counters loosely (some pages for each
/// processor), and small mappings of files come and go between examinations.
const SLACK_BYTES: u64 = 1 << 20;

/// A snapshot of /proc/PID/status, in bytes (Documentation/filesystems/proc.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// VmHWM: the largest resident set so far, without hugetlb pages.
    most_resident_bytes: u64,
    /// RssAnon.
    anonymous_bytes: u64,
    /// RssFile and RssShmem.
    other_bytes: u64,
    /// RssShmem: present shared memory.
    shared_bytes: u64,
    /// HugetlbPages. The kernel does not record a peak.
    hugetlb_bytes: u64,
    /// VmSwap: private memory in swap space.
    swapped_bytes: u64,
    /// VmData: private writable memory that is mapped.
    mapped_bytes: u64,
    /// VmPTE: page tables of all levels. The kernel does not record a peak.
    page_table_bytes: u64,
}

/// The memory of one process, from the start of a program to its end or the next exec, from the examinations.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The status at the last examination.
    last: Status,
    /// Peak of the resident set and hugetlb pages.
    pub most_resident_bytes: u64,
    /// The most hugetlb pages at an examination.
    pub most_hugetlb_bytes: u64,
    /// The most private writable memory at an examination.
    pub mapped_bytes: u64,
    /// The most page tables at an examination.
    pub page_table_bytes: u64,
    /// The most shared memory at an examination.
    pub shared_bytes: u64,
    /// Lower bound of the peak of anonymous and hugetlb memory.
    least_bytes: u64,
    /// Bytes of that peak that were examined since it was reached.
    seen_bytes: u64,
    /// The addresses of the examined memory.
    seen: Ranges<()>,
    /// The remaining parts of large pages that were cut, with their mapping before the cut.
    pub remains: Remains,
    /// Whether the end of the process could not be examined, which is reported as a separate cause.
    pub is_hidden: bool,
    /// Whether every call stops that takes private memory. Then the largest sum of private memory at a stop is its peak, and the
    /// peak of the resident set, which includes shared memory and files, adds nothing.
    sees_all_frees: bool,
    /// Whether some of it was in swap space at an examination.
    was_swapped: bool,
}

impl Status {
    /// The process of a task and the process's status. `None` where its memory is gone.
    fn of(task: libc::pid_t) -> io::Result<(libc::pid_t, Option<Status>)> {
        let text = host::content(format!("/proc/{task}/status"))?;
        let process = field(&text, "Tgid:").and_then(|id| libc::pid_t::try_from(id).ok());
        let process = process.ok_or_else(|| io::Error::other("expected a line Tgid, found none"))?;
        Ok((process, Status::parse(&text)))
    }

    /// The process of a task; the task itself where it is gone.
    pub fn process_of(task: libc::pid_t) -> libc::pid_t {
        Status::of(task).map_or(task, |(process, _)| process)
    }

    /// Anonymous and hugetlb memory of a task; `None` where it is not known.
    pub fn concerned_bytes(task: libc::pid_t) -> Option<u64> {
        Status::of(task).ok()?.1.map(|status| status.anonymous_bytes + status.hugetlb_bytes)
    }

    /// `None` where a line is missing, because the memory is gone. Only a kernel with hugetlb pages has a line for them.
    fn parse(text: &str) -> Option<Status> {
        let bytes = |name: &str| field(text, name)?.checked_mul(1024);
        let shared_bytes = bytes("RssShmem:")?;
        Some(Status {
            most_resident_bytes: bytes("VmHWM:")?,
            anonymous_bytes: bytes("RssAnon:")?,
            other_bytes: bytes("RssFile:")? + shared_bytes,
            shared_bytes,
            hugetlb_bytes: bytes("HugetlbPages:").unwrap_or(0),
            // Only a kernel with swap space has this line.
            swapped_bytes: bytes("VmSwap:").unwrap_or(0),
            mapped_bytes: bytes("VmData:")?,
            page_table_bytes: bytes("VmPTE:")?,
        })
    }
}

/// The largest resident set that this process ever had, in bytes.
pub fn own_peak_bytes() -> Option<u64> {
    let text = host::content("/proc/self/status").ok()?;
    field(&text, "VmHWM:")?.checked_mul(1024)
}

impl Memory {
    /// Processes the status at an examination. If the peak has risen since the last examination, none of it has been examined
    /// yet.
    ///
    /// The kernel does not record a peak of anonymous memory. A lower bound is the peak of the resident set less files and
    /// shared memory, for which the larger of their sizes at the examination before and at this one is taken.
    pub fn measure(&mut self, now: Status) {
        self.most_resident_bytes = self.most_resident_bytes.max(now.most_resident_bytes + now.hugetlb_bytes);
        self.most_hugetlb_bytes = self.most_hugetlb_bytes.max(now.hugetlb_bytes);
        self.mapped_bytes = self.mapped_bytes.max(now.mapped_bytes);
        self.page_table_bytes = self.page_table_bytes.max(now.page_table_bytes);
        self.shared_bytes = self.shared_bytes.max(now.shared_bytes);
        self.was_swapped |= now.swapped_bytes > 0;
        let mut least_bytes = now.anonymous_bytes + now.hugetlb_bytes;
        if self.sees_all_frees {
            least_bytes += now.swapped_bytes;
        } else if now.most_resident_bytes > self.last.most_resident_bytes {
            let others = now.other_bytes.max(self.last.other_bytes);
            least_bytes = least_bytes.max(now.most_resident_bytes.saturating_sub(others));
        }
        if least_bytes > self.least_bytes {
            (self.least_bytes, self.seen_bytes) = (least_bytes, 0);
            self.seen = Ranges::default();
        }
        self.last = now;
    }

    /// Counts memory found at addresses where none was found since the peak.
    pub fn look(&mut self, found: &ProcessCensus) {
        let regions = found.areas.iter().flat_map(|area| &area.regions);
        let concerned = regions.filter(|region| region.mapping.is_concerned());
        let fresh = concerned.flat_map(|region| self.seen.gaps(region.start, region.end));
        self.seen_bytes += if found.areas.is_empty() {
            found.census.concerned_bytes()
        } else {
            fresh.map(|(start, end)| end - start).sum()
        };
    }

    /// The mapping, before the cut, of the remaining parts of large pages in a range.
    pub fn before_the_cut(&self, start: u64, end: u64) -> ProcessCensus {
        let areas = self.remains.within(start, end).into_iter().map(|region| Area {
            vma: Vma {
                start: region.start,
                end: region.end,
                protection: 0,
                shared: false,
                device: (0, 0),
                inode: 0,
                offset: 0,
                name: String::new(),
            },
            regions: vec![region],
        });
        let areas: Vec<Area> = areas.collect();
        let mut census = Census::default();
        areas
            .iter()
            .flat_map(|area| &area.regions)
            .for_each(|region| census.add(region.mapping, region.length_bytes()));
        ProcessCensus { pid: 0, census, source: Source::PagemapScan, folios_of_system: None, areas }
    }

    /// Records that a range is freed. Memory mapped there later is unrelated.
    pub fn removed(&mut self, start: u64, end: u64) {
        self.remains.forget(start, end);
        self.seen.set(start, end, ());
    }

    /// The same memory when no more examinations follow: the addresses are no longer needed.
    pub fn ended(self) -> Memory {
        Memory { seen: Ranges::default(), remains: Remains::default(), ..self }
    }

    /// How much of the peak was examined. Hugetlb pages and anonymous memory may or may not have had their peaks at the same
    /// time.
    pub fn peak(&self) -> Peak {
        let seen_bytes = match self.least_bytes.saturating_sub(self.seen_bytes) {
            0..SLACK_BYTES => self.least_bytes,
            _ => self.seen_bytes,
        };
        let most_bytes = self.last.most_resident_bytes + self.most_hugetlb_bytes;
        Peak { seen_bytes, least_bytes: self.least_bytes, most_bytes: most_bytes.max(self.least_bytes) }
    }
}

/// The memory of all processes of a trial.
#[derive(Clone, Debug, Default)]
pub struct PeakMemory {
    /// The memory of each living process.
    living: BTreeMap<libc::pid_t, Memory>,
    /// The memory of processes that ended, and of images that were replaced.
    ended: Vec<Memory>,
    /// Whether the memory of some process could not be read; then no figure is complete.
    is_unread: bool,
    /// Whether every call of a process stops that takes private memory.
    sees_all_frees: bool,
    /// How memory may have been freed without such a call.
    unwatched: BTreeSet<Unwatched>,
}

impl PeakMemory {
    /// `sees_all_frees` says whether every call stops that takes private memory.
    pub fn new(sees_all_frees: bool) -> PeakMemory {
        PeakMemory { sees_all_frees, ..PeakMemory::default() }
    }

    /// The memory of a living process.
    pub fn of(&mut self, process: libc::pid_t) -> &mut Memory {
        let sees_all_frees = self.sees_all_frees;
        self.living.entry(process).or_insert_with(|| Memory { sees_all_frees, ..Memory::default() })
    }

    /// Records that the memory of a process may be freed without a call that stops. Children inherit io_uring descriptors.
    pub fn frees_unwatched(&mut self, process: libc::pid_t, way: Unwatched) {
        self.unwatched.insert(way);
        self.of(process).sees_all_frees = false;
        if way == Unwatched::IoUring {
            self.sees_all_frees = false;
            self.living.values_mut().for_each(|memory| memory.sees_all_frees = false);
        }
    }

    /// How memory may have been freed without a call that stops.
    pub fn unwatched(&self) -> BTreeSet<Unwatched> {
        let swapped = self.all().any(|memory| memory.was_swapped).then_some(Unwatched::SwappedOut);
        self.unwatched.iter().copied().chain(swapped).collect()
    }

    /// The most hugetlb pages of a process at an examination.
    pub fn most_hugetlb_bytes(&self, process: libc::pid_t) -> u64 {
        self.living.get(&process).map_or(0, |memory| memory.most_hugetlb_bytes)
    }

    /// Reads the status of a task's process. Must be called whenever memory is freed, because the kernel records no peak of
    /// hugetlb pages and page tables. Returns the process; for a task that is gone, the task. After an error no figure of the
    /// trial is complete.
    pub fn measure(&mut self, task: libc::pid_t) -> io::Result<libc::pid_t> {
        self.record(task, Status::of(task))
    }

    fn record(
        &mut self,
        task: libc::pid_t,
        read: io::Result<(libc::pid_t, Option<Status>)>,
    ) -> io::Result<libc::pid_t> {
        let read = if_exists(read).inspect_err(|_| self.is_unread = true)?;
        let Some((process, now)) = read else { return Ok(task) };
        if let Some(now) = now {
            self.of(process).measure(now);
        }
        Ok(process)
    }

    /// Records that a process's memory is gone.
    pub fn close(&mut self, process: libc::pid_t) {
        self.ended.extend(self.living.remove(&process).map(Memory::ended));
    }

    /// The observations of memory; empty where something could not be read.
    pub fn observations(&self) -> Vec<Observation> {
        if self.is_unread {
            return Vec::new();
        }
        let Some(peak_bytes) = self.all().map(|memory| memory.most_resident_bytes).max() else { return Vec::new() };
        let page_table_bytes: u64 = self.all().map(|memory| memory.page_table_bytes).sum();
        let shared_bytes = self.all().map(|memory| memory.shared_bytes).max().unwrap_or(0);
        vec![
            Observation::measured(names::PEAK_RESIDENT_BYTES, peak_bytes as f64),
            Observation::measured(names::PAGE_TABLE_SEEN_BYTES, page_table_bytes as f64),
            Observation::measured(names::SHARED_BYTES, shared_bytes as f64),
        ]
    }

    /// The sum over all processes of the peak resident memory, or of the mapped private writable memory if that is more:
    /// pages of a pool are reserved when memory is mapped, not when it is touched.
    pub fn needed_bytes(&self) -> u64 {
        self.all().map(|memory| memory.most_resident_bytes.max(memory.mapped_bytes)).sum()
    }

    /// How much of the concerned memory was examined, relative to the peak of each process, or image of one. Processes whose end
    /// was not examined are left out: their memory belongs to another process (vfork), they were killed, or could not be
    /// examined.
    pub fn peak(&self) -> Peak {
        let mut peak = Peak::default();
        self.ended.iter().filter(|memory| !memory.is_hidden).for_each(|memory| peak += memory.peak());
        peak
    }

    fn all(&self) -> impl Iterator<Item = &Memory> {
        self.ended.iter().chain(self.living.values())
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
