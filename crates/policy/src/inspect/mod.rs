//! An inspection: which page sizes map a running process, region by region, and why not larger ones.
//!
//! A *region* is what the program, or its allocator, takes for one piece of memory: neighbouring mappings (VMAs) that are one
//! allocation, cut by protections, guard pages, advice or names. The cuts belong to it, because they are causes.
//!
//! Here are the nouns, and the pure functions over what was read: nothing here reads a process. Who reads fills
//! [`Seen`] mapping by mapping, and [`Region`] is what becomes of it.

mod cause_evidence;
mod collapsed;
mod explain;
mod files;
mod ground;
mod group;
mod history;
mod kind;
mod process;
mod recognise;
mod region;
mod seen;
mod shared;
mod summary;
mod supply;
mod vma;

pub use crate::cut::{Cut, CutBy};
pub use collapsed::{Collapsed, collapse_refusal};
pub use explain::{explain, explain_windows};
pub use ground::Ground;
pub use group::{cuts, group};
pub use kind::{Allocator, FilePart, Kind};
pub use process::{MemoryLimit, Process, Sight, ThpMode};
pub use recognise::{Surroundings, recognise};
pub use region::{Explained, Region};
pub use seen::{Left, Outline, Seen, TlbRuns, Win, Window};
pub use summary::{Summary, explained};
pub use supply::{Pool, Since, Supply};
pub use vma::{FileSystem, Told, VmFlags, VmaFacts, VmaPart};

/// What was found of a process at one look.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// The process.
    pub process: Process,
    /// Its regions, in the order of addresses.
    pub regions: Vec<Region>,
    /// What the kernel could give, and how often it could not.
    pub supply: Supply,
    /// How the figures were obtained.
    pub sight: Sight,
    /// What makes the answer a partial one, in clauses: the process changed or ended meanwhile, a file could not be read.
    pub partial: Vec<String>,
}

impl Inspection {
    /// Bytes that are present, of all backings but the zero page.
    pub fn resident_bytes(&self) -> u64 {
        self.regions.iter().map(Region::resident_bytes).sum()
    }

    /// Bytes that could be mapped by larger pages than they are, over all regions.
    pub fn could_be_larger_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.win.bytes).sum()
    }

    /// Bytes that larger pages would add to them: absent pages in the windows that they would fill.
    pub fn bloat_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.win.absent_bytes).sum()
    }

    /// All regions as one census.
    pub fn census(&self) -> crate::census::Census {
        let mut census = crate::census::Census::default();
        self.regions.iter().for_each(|region| census.merge(&region.census));
        census
    }
}
