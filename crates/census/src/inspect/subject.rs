//! [`Subject`]: what is inspected, a process of the running kernel or a capture of one.

use std::io::{self, BufRead};

use policy::census::Region as Run;
use policy::file_folios::Version;
use policy::hugetlb::HugetlbLimit;
use policy::inspect::{BasePageSupport, FileSystem, Jemalloc, MemoryLimit, SecondStage, TlbRuns, VmaFacts};
use policy::size::PageSize;

use crate::CensusError;

/// The page sizes of the kernel on which a subject runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The base page size.
    pub base: PageSize,
    /// The size of a PMD leaf; `None` where the kernel has no THP.
    pub pmd: Option<PageSize>,
    /// All transparent sizes of anonymous memory, smallest first.
    pub transparent: Vec<PageSize>,
    /// The sizes of hugetlb pages, smallest first.
    pub hugetlb: Vec<PageSize>,
}

/// Present memory in a mapping or in a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentMemory {
    /// Runs of memory in address order.
    pub runs: Vec<Run>,
    /// Memory by the size of the TLB entry that could hold it; `None` where frame numbers were not read.
    pub tlb_runs: Option<TlbRuns>,
}

impl PresentMemory {
    /// Upper bound of the number of windows that have memory.
    pub fn max_windows(&self, window: PageSize) -> u64 {
        let touched = |bytes: u64| bytes / window.bytes() + 2;
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return 0 };
        let by_run: u64 = self.runs.iter().map(|run| touched(run.length_bytes())).sum();
        by_run.min(touched(last.end - first.start))
    }
}

/// The subject of an inspection.
pub trait Subject {
    /// The page sizes of its kernel.
    fn sizes(&self) -> &Sizes;
    /// The path of a file of `/proc/PID`, for errors.
    fn path(&self, name: &str) -> String;
    /// The content of a file of `/proc/PID`.
    fn text(&self, name: &str) -> io::Result<String>;
    /// Opens a file of `/proc/PID` to be read line by line.
    fn lines(&self, name: &str) -> io::Result<Box<dyn BufRead>>;
    /// The error for a file of `/proc/PID` that cannot be read.
    fn read_error(&self, name: &str, error: io::Error) -> CensusError;
    /// The path of its program; `None` where it cannot be read.
    fn program(&self) -> Option<String>;
    /// Stack pointers of its threads, sorted.
    fn stacks(&self) -> Vec<u64>;
    /// Whether it has a KVM virtual machine open.
    fn has_guest(&self) -> bool;
    /// What maps the memory of its KVM virtual machines.
    fn second_stage(&self) -> SecondStage;
    /// Which larger base page sizes its program, and the libraries among these mappings, can be loaded with.
    fn base_page_support(&self, vmas: &[VmaFacts]) -> BasePageSupport;
    /// Copies of jemalloc, in its program and in the libraries among these mappings, that may refuse larger base pages; `None`
    /// where the files were not read.
    fn jemalloc(&self, vmas: &[VmaFacts]) -> Option<Vec<Jemalloc>>;
    /// Whether it has children; `None` where the kernel does not list them, and for a capture that does not exclude them.
    fn has_children(&self) -> Option<bool>;
    /// The variables that it was started with, `NAME=VALUE` each; none where they cannot be read, or were overwritten.
    fn environment(&self) -> Vec<String> {
        Vec::new()
    }
    /// Whether its program was built by Go.
    fn is_go(&self) -> bool;
    /// Whether the file of a mapping is in shared memory.
    fn is_shmem(&self, device: (u32, u32)) -> bool;
    /// The file system of a device, where it is mounted.
    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem>;
    /// The limit of its memory control group, whose directory is `group`.
    fn memory_limit(&self, group: &str) -> Option<MemoryLimit>;
    /// Limits that its control groups put on hugetlb pages; empty in a capture.
    fn hugetlb_limits(&self) -> Vec<HugetlbLimit> {
        Vec::new()
    }
    /// Guards inside a mapping, in address order.
    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)>;
    /// Whether its pages can be read one by one; otherwise smaps provides sums.
    fn is_by_page(&self) -> bool;
    /// Whether folios behind base-page PTEs are visible.
    fn sees_folios(&self) -> bool;
    /// The version of its kernel; `None` where it is not known.
    fn kernel(&self) -> Option<Version>;
    /// Whether anonymous folios of a size may exist on its kernel.
    fn may_have(&self, size: PageSize) -> bool;
    /// The most addresses of one mapping that one call of [`Subject::present_memory`] covers.
    fn max_step_bytes(&self) -> u64;
    /// Bytes of pages at addresses outside these mappings.
    fn unplaced_bytes(&self, vmas: &[VmaFacts]) -> u64;
    /// Present memory of these mappings between two addresses.
    fn present_memory(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<PresentMemory>, CensusError>;
    /// For the folios that the process maps only in part: bytes that no mapping found so far maps. `None` where folios are
    /// not visible, and for a capture.
    fn held_unmapped_bytes(&self) -> Option<u64> {
        None
    }
    /// Fills a buffer with its memory from an address on; returns how many bytes were read. A capture has no contents.
    fn read_memory(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether it is a running process, which may change and whose PID may be reused.
    fn is_live(&self) -> bool;
    /// Files that could not be read for the answers so far, as clauses; the answers are as if the files did not exist.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }
    /// Fails if an answer so far may be wrong: the error names the first file that is necessary and could not be read.
    fn check(&self) -> Result<(), CensusError> {
        Ok(())
    }
}
