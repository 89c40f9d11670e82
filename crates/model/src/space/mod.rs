//! An address space: VMAs, demand paging under a policy into real page tables, and its costs.
//!
//! Follows mm/memory.c and mm/huge_memory.c of Linux: `do_anonymous_page`, `do_huge_pmd_anonymous_page`,
//! `do_read_fault` with fault-around, `do_wp_page`. Simplifications: all file pages are in the page cache, as single
//! pages and not contiguous; memory advised as free (MADV_FREE) stays, even if memory is short.
//!
//! The data are one object for each concept: `process` is one address space and `tables` changes it, `processes` are
//! all of them, `memory` is the memory that can be allocated, `swap_cache` the pages that nothing maps, `scan`
//! khugepaged's clock, `seen` the observations for the verdict. `paged` contains all of them. `page_tables` decides
//! which tables are freed, `lazy` what advice splits. Faults, calls, fork, reclaim and khugepaged operate on them.

mod advice;
mod buddy;
mod cost;
mod direct;
mod error;
mod event;
mod fault;
mod folio;
mod fork;
mod interface;
mod khugepaged;
mod lazy;
mod leaf;
mod memory;
mod page_tables;
mod paged;
mod part;
mod places;
mod process;
mod processes;
mod reclaim;
mod remap;
mod scan;
mod seen;
mod swap;
mod swap_cache;
mod tables;
mod vma;
mod witness;

use paging::{Error, with_format};

pub use crate::kernel::{Kernel, Khugepaged};
use crate::policy::Plan;
pub use buddy::Physical;
pub use cost::{Costs, ZeroedFolios};
pub use error::SpaceError;
pub use interface::Space;
pub use leaf::{LEVELS, Leaf, Path};
use paged::Paged;
pub use places::MAX_MEMORY_BYTES;
pub use seen::LeftOut;

/// An empty address space.
///
/// # Errors
/// The format cannot have a root at the address of the tables.
pub fn new(plan: &Plan, physical: &Physical) -> Result<Box<dyn Space>, Error> {
    Ok(with_format!(plan.format.format, format => Box::new(Paged::new(format, plan, physical)?)))
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod copy_tests;
#[cfg(test)]
mod fork_oracle;
#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod interpreter_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod khugepaged_tests;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod swap_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verdict_tests;
