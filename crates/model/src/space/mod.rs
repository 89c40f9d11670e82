//! An address space: VMAs, demand paging by a policy into real page tables, and what it costs.
//!
//! Follows mm/memory.c and mm/huge_memory.c of Linux: `do_anonymous_page`, `do_huge_pmd_anonymous_page`,
//! `do_read_fault` with fault-around, `do_wp_page`. What is simplified: all file pages are in the page cache, one by one
//! and not contiguous; tables that become empty are freed at once; memory advised as free (MADV_FREE) stays.

mod advice;
mod buddy;
mod cost;
mod direct;
mod event;
mod fault;
mod folio;
mod fork;
mod held;
mod kernel;
mod khugepaged;
mod paged;
mod process;
mod reclaim;
mod remap;
mod swap;
mod vma;

use paging::{Census, Error, Flags, with_format};
use study::verdict::Verdict;
use thiserror::Error as ThisError;
use trace::Event;

use crate::policy::{Granule, Plan};
use buddy::Buddy;
pub use buddy::Physical;
pub use cost::Costs;
use folio::Folios;
pub use held::LeftOut;
pub use kernel::{Kernel, Khugepaged};
use paged::{Paged, is_file};
use process::{Heap, Part, Process};
use swap::Names;
use vma::{Advice, Backing, Object, Vma, Vmas};

/// Memory that a program can have at most: all that is below the tables, so that addresses have 40 bits.
pub const MAX_MEMORY_BYTES: u64 = 1 << 38;
/// Where page tables live: apart from all other memory.
const TABLES_PA: u64 = MAX_MEMORY_BYTES;
/// More tables than any trace needs.
const TABLES_BYTES: u64 = 1 << 32;
/// Processes whose tables have places of their own; those of others are taken for the same by caches.
const MOST_TABLES: u32 = 16;
/// The shared pages full of zeros: of every size at the same place.
const ZERO_PA: u64 = 3 << 37;
/// The page cache.
const FILES_PA: u64 = 1 << 39;
/// Levels that a walk can have.
pub const LEVELS: usize = 5;

/// Why a simulation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum SpaceError {
    /// Not one base page is free any more.
    #[error(
        "out of memory at {va:#x}: the memory limit leaves no page of {base_bytes} bytes; allow more with --memory"
    )]
    OutOfMemory {
        /// The address that was touched.
        va: u64,
        /// Bytes of a base page.
        base_bytes: u64,
    },
    /// An address that the page tables cannot hold.
    #[error("{}", with_remedy(.0))]
    Tables(#[from] Error),
}

fn with_remedy(error: &Error) -> String {
    match error {
        Error::NotCanonical { .. } => format!("{error}; take a machine whose programs have more bits of address"),
        _ => error.to_string(),
    }
}

/// What maps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Bytes that its entry maps.
    pub leaf_bytes: u64,
    /// Bytes of the contiguous group that it says it belongs to, or of the leaf.
    pub group_bytes: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether a fault mapped it just now.
    pub faulted: bool,
}

/// The entries that a walk reads, the root's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Their physical addresses, by level.
    pub entries: [u64; LEVELS],
    /// The level of the root.
    pub root_level: u8,
    /// The level of the leaf.
    pub leaf_level: u8,
}

/// An address space without its format.
pub trait Space: Send {
    /// What maps `va`, after as many faults as it takes for a load or a store.
    ///
    /// # Errors
    /// Memory is used up, or no table can hold the address.
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError>;

    /// Bytes of the largest aligned block around `va`, which `leaf` maps, whose memory is contiguous and aligned: of up to
    /// sixteen leaves, or the contiguous group.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64;

    /// What a walk to `va`, which is mapped, reads.
    fn path(&self, va: u64) -> Path;

    /// The physical address behind `va`, if anything maps it.
    fn physical(&self, va: u64) -> Option<u64>;

    /// log2 of the bytes that an entry of each level spans.
    fn shifts(&self) -> [u8; LEVELS];

    /// A system call of the program.
    ///
    /// # Errors
    /// As [`Space::access`]: memory can be populated.
    fn event(&mut self, event: &Event) -> Result<(), SpaceError>;

    /// Takes the ranges (first address and bytes) that were dropped from all TLBs since the last time.
    fn take_invalidations(&mut self) -> Vec<(u64, u64)>;

    /// Takes the ranges whose next accesses are to be told though nothing was dropped from the TLBs: reclaim has
    /// cleared their accessed bits.
    fn take_forgotten(&mut self) -> Vec<(u64, u64)>;

    /// A stretch of memory that no event tells of, as anonymous memory; memory of the machine under a direct map.
    ///
    /// # Errors
    /// The tables have no room.
    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError>;

    /// What the kernel does besides the policy; its defaults are Linux's.
    fn set_kernel(&mut self, kernel: Kernel);

    /// Tells the time: instructions that the program has executed. What the kernel does by the clock is done now.
    ///
    /// # Errors
    /// Memory is used up, or tables cannot be walked, which no operation makes.
    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError>;

    /// Makes a copy of the running process, as fork does, and gives its number. The first process has the number 0.
    ///
    /// # Errors
    /// The copy's tables have no room.
    fn fork(&mut self) -> Result<u32, SpaceError>;

    /// Goes on as another process; `false` if it has ended or never was.
    fn enter(&mut self, process: u32) -> bool;

    /// Ends a process that is not running: what it has mapped is counted and given back.
    ///
    /// # Errors
    /// Tables that cannot be walked, which no operation makes.
    fn end(&mut self, process: u32) -> Result<(), SpaceError>;

    /// What it has cost so far.
    fn costs(&self) -> Costs;

    /// What the tables of all processes map, by walking them.
    ///
    /// # Errors
    /// Tables that are no tree, which no operation makes.
    fn census(&self) -> Result<Census, Error>;

    /// What every process had mapped when it ended, and those that have not ended have now.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn census_at_ends(&self) -> Result<Census, Error>;

    /// Whether the policy held on all memory that there was, and why not.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn verdict(&self) -> Result<Verdict, Error>;

    /// What `pagelab compare` leaves out of such a verdict.
    fn left_out(&self) -> LeftOut;
}

/// An empty address space.
///
/// # Errors
/// The format has no root at the place of tables.
pub fn new(plan: &Plan, physical: &Physical) -> Result<Box<dyn Space>, Error> {
    Ok(with_format!(plan.format.format, format => Box::new(Paged::new(format, plan, physical)?)))
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod interpreter_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdict_tests;
