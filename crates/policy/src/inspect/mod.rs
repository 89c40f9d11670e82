//! An inspection: which page sizes map a running process, region by region, and why they are not larger.
//!
//! A *region* is one allocation from the point of view of the program or its allocator: neighbouring mappings (VMAs) that
//! protections, guard pages, advice or names keep apart. A *cut* is a VMA boundary or a guard page inside a region; it belongs to
//! the region because it is a cause. A *slot* is a naturally aligned range of the wanted page size.
//!
//! This module has the types and the pure functions on data that was read; it does not read a process itself. The reader fills
//! [`RegionMemory`] mapping by mapping, and the result is a [`Region`].

mod base_pages;
mod cause_evidence;
mod charges;
mod collapsed;
mod context;
mod explain;
mod files;
mod found_causes;
mod gate;
mod group;
mod history;
mod jemalloc;
mod process;
mod recognise;
mod region;
mod region_memory;
mod second_stage;
mod shared;
#[cfg(test)]
mod sum_tests;
mod summary;
mod supply;
mod totals;
mod vma;

use crate::hugetlb::RefusedRequest;

pub use crate::cut::{Cut, CutBy};
pub use crate::hugetlb::NodePool;
pub use crate::kind::{Allocator, FilePart, Kind};
pub use base_pages::{LoadSegment, Loader, RefusedBasePages, largest_of_all};
pub use charges::{Charges, HugetlbCharge};
pub use collapsed::{Collapsed, collapse_refusal};
pub use context::Context;
pub use explain::{accessible_bytes, explain, explain_windows};
pub use group::{cuts, group};
pub use jemalloc::Jemalloc;
pub use process::{BasePageSupport, Contents, MemoryLimit, Process, ThpMode, Visibility};
pub use recognise::{Neighbours, Surroundings, recognise};
pub use region::{Explained, Region};
pub use region_memory::{BelowTarget, Benefit, RegionBounds, RegionMemory, TlbRuns, Window};
pub use second_stage::{SecondStage, Statistics};
pub use summary::{Summary, explained};
pub use supply::{ChangedSetting, Fallbacks, Pool, Since, Supply};
pub use totals::Totals;
pub use vma::{FileSystem, SmapsInfo, VmFlags, VmaFacts, VmaPart};

use crate::remedy::Runtime;

/// The result of inspecting a process once.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// The inspected process.
    pub process: Process,
    /// The regions of the process, in address order.
    pub regions: Vec<Region>,
    /// The runtimes of the process that have switches of their own.
    pub runtimes: Vec<Runtime>,
    /// What the kernel could allocate, and how often allocations failed.
    pub supply: Supply,
    /// Requests for hugetlb pages, by the command and its descendants, that the kernel refused; `None` where the inspection did
    /// not start the process and therefore did not see its calls.
    pub refused_requests: Option<Vec<RefusedRequest>>,
    /// How the figures were obtained.
    pub sight: Visibility,
    /// Reasons why the result is incomplete, as clauses: the process changed or ended during the inspection, or a file could not
    /// be read.
    pub partial: Vec<String>,
}

impl Inspection {
    /// Bytes that are present, of every backing except the zero page.
    pub fn resident_bytes(&self) -> u64 {
        self.regions.iter().map(Region::resident_bytes).sum()
    }

    /// Bytes in all regions that larger pages could map.
    pub fn could_be_larger_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.benefit.bytes).sum()
    }

    /// Bytes by which larger pages would increase memory use: absent pages in the slots that they would fill.
    pub fn bloat_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.benefit.absent_bytes).sum()
    }

    /// The sum of the censuses of all regions.
    pub fn census(&self) -> crate::census::Census {
        let mut census = crate::census::Census::default();
        self.regions.iter().for_each(|region| census.merge(&region.census));
        census
    }
}
