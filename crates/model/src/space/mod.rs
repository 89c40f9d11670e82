//! Address spaces: VMAs, demand paging under a policy into real page tables, and its costs.
//!
//! Follows mm/memory.c and mm/huge_memory.c of Linux: `do_anonymous_page`, `do_huge_pmd_anonymous_page`,
//! `do_read_fault` with fault-around, `do_wp_page`. Simplifications: all file pages are in the page cache, as single pages
//! that are not contiguous; memory advised as free (MADV_FREE) is kept, even if memory is short.
//!
//! Each kind of state has a module: `process` is one address space, and `tables` changes its tables; `processes` contains
//! all of them; `memory` is the allocator with the folios; `swap_cache` contains the pages that processes reference but may
//! not map; `scan` is khugepaged's clock; `observations` collects facts for the verdict. `paged` combines them. `fault`,
//! `event`, `advice`, `fork`, `reclaim` and `khugepaged` change this state. `free_tables` decides which tables are freed,
//! and `advice_splits` which folios advice splits.

mod advice;
mod advice_splits;
mod apply_policy;
mod buddy;
mod direct_map;
mod error;
mod event;
mod fault;
mod folio;
mod folio_pages;
mod fork;
mod free_tables;
mod interface;
mod khugepaged;
mod leaf;
mod lock;
mod memory;
mod observations;
mod paged;
mod part;
mod physical_layout;
mod process;
mod processes;
mod reclaim;
mod remap;
mod scan;
mod swap;
mod swap_cache;
mod tables;
mod vma;
mod witness;

use paging::{Error, with_format};

pub use crate::kernel::{Kernel, Khugepaged};
use crate::policy::Plan;
pub use buddy::Physical;
pub use error::SpaceError;
pub use interface::Space;
pub use leaf::{LEVELS, Leaf, Path};
pub use observations::LeftOut;
use paged::AddressSpaces;
pub use physical_layout::MAX_MEMORY_BYTES;

/// One process with an empty address space, on a machine with this memory.
pub fn new(plan: &Plan, physical: &Physical) -> Result<Box<dyn Space>, Error> {
    Ok(with_format!(plan.format.format, format => Box::new(AddressSpaces::new(format, plan, physical)?)))
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod copy_on_write_tests;
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
