//! Whom a look is at: a process of the running kernel, or a capture of one.

use std::io::{self, BufRead};

use policy::census::Region as Run;
use policy::inspect::{FileSystem, MemoryLimit, TlbRuns, VmaFacts};
use policy::size::PageSize;

use crate::CensusError;

/// The sizes of the kernel that a subject runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The base page.
    pub base: PageSize,
    /// What a PMD leaf maps; `None` where the kernel has no THP.
    pub pmd: Option<PageSize>,
    /// All transparent sizes of anonymous memory, smallest first.
    pub transparent: Vec<PageSize>,
}

/// What is present in one mapping, or in a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Runs of memory, in the order of addresses.
    pub runs: Vec<Run>,
    /// Memory by the entries of a TLB that could hold it; `None` where frames were not looked at.
    pub tlb_runs: Option<TlbRuns>,
}

impl Found {
    /// Windows that it can fill, at most.
    pub fn max_windows(&self, window: PageSize) -> u64 {
        let touched = |bytes: u64| bytes / window.bytes() + 2;
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return 0 };
        let by_run: u64 = self.runs.iter().map(|run| touched(run.length_bytes())).sum();
        by_run.min(touched(last.end - first.start))
    }
}

/// Whom a look is at.
pub trait Subject {
    /// The sizes of its kernel.
    fn sizes(&self) -> &Sizes;
    /// Where a file of `/proc/PID` is, for errors.
    fn path(&self, name: &str) -> String;
    /// A file of `/proc/PID`.
    fn text(&self, name: &str) -> io::Result<String>;
    /// A file of `/proc/PID`, to be read line by line.
    fn lines(&self, name: &str) -> io::Result<Box<dyn BufRead>>;
    /// What it says that a file of `/proc/PID` cannot be read.
    fn failed(&self, name: &str, error: io::Error) -> CensusError;
    /// Its program; `None` where it cannot be read.
    fn program(&self) -> Option<String>;
    /// Stack pointers of its threads, in order.
    fn stacks(&self) -> Vec<u64>;
    /// Whether it has a virtual machine of KVM open.
    fn has_guest(&self) -> bool;
    /// Whether its program was made by Go.
    fn is_go(&self) -> bool;
    /// Whether the file behind a mapping lies in shared memory.
    fn is_shmem(&self, device: (u32, u32)) -> bool;
    /// The file system of a device, where it is mounted.
    fn file_system(&self, device: (u32, u32)) -> Option<FileSystem>;
    /// The limit of its memory control group, which lies in this directory.
    fn memory_limit(&self, group: &str) -> Option<MemoryLimit>;
    /// Guards inside a mapping, in order.
    fn guards(&self, start: u64, end: u64) -> Vec<(u64, u64)>;
    /// Whether its pages can be looked at one by one; else smaps has sums.
    fn is_by_page(&self) -> bool;
    /// Whether folios behind base-page entries are seen.
    fn sees_folios(&self) -> bool;
    /// Whether anonymous folios of a size may exist on its kernel.
    fn may_have(&self, size: PageSize) -> bool;
    /// Addresses of one mapping that are looked at in one call of [`Subject::found`], at most.
    fn max_step_bytes(&self) -> u64;
    /// Bytes of pages at addresses outside of these mappings.
    fn unplaced_bytes(&self, vmas: &[VmaFacts]) -> u64;
    /// What is present of these mappings between two addresses.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    fn found(&self, vmas: &[VmaFacts], start: u64, end: u64) -> Result<Vec<Found>, CensusError>;
    /// Whether it runs: what it shows may change, and its number may be given to another.
    fn is_live(&self) -> bool;
    /// What could not be read for the answers so far, in clauses: they are as if it were not there.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }
    /// Whether the answers so far may be used at all.
    ///
    /// # Errors
    /// What would be wrong without a file that could not be read.
    fn usable(&self) -> Result<(), CensusError> {
        Ok(())
    }
}
