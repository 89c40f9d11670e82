//! An address space: VMAs, demand paging by a policy into real page tables, and what it costs.
//!
//! Follows mm/memory.c and mm/huge_memory.c of Linux: `do_anonymous_page`, `do_huge_pmd_anonymous_page`,
//! `do_read_fault` with fault-around, `do_wp_page`. What is simplified: all file pages are in the page cache, one by one
//! and not contiguous; memory advised as free (MADV_FREE) stays, also where memory is short.
//!
//! The data are one object an idea: `process` is one address space and `tables` changes it, `processes` are all of them,
//! `memory` is what can be allocated, `swap_cache` what nothing maps, `scan` khugepaged's clock, `seen` what was judged.
//! `paged` has them all; `page_tables` says which tables go, `lazy` what advice splits; faults, calls, fork, reclaim and khugepaged are what is done with them.

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
/// The format has no root at the place of tables.
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
