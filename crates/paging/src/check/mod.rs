//! Whether tables keep the rules of their architecture: as they stand ([`check`]), and while they change
//! ([`live`]).
//!
//! The rules are stated here by what hardware may do with entries, not by how [`crate::Tables`] makes them, so
//! that a fault of that code is found as well as one of a dump.

use crate::address::OutputAddress;
use crate::arena::Arena;
use crate::format::Format;
use crate::log::Log;
use crate::tables::Tables;

mod group;
pub mod live;
mod report;
mod tree;

pub use report::{Fault, MAX_FAULTS, Report};

/// Looks at every entry of tables.
pub fn check<F: Format, L: Log>(tables: &Tables<F, L>) -> Report {
    check_arena(tables.format(), tables.arena(), tables.root())
}

/// Looks at every entry of the tables whose root is at `root`, in memory that may hold anything. Each table is
/// looked at once for each level that it is met at.
pub fn check_arena(format: &impl Format, arena: &Arena, root: OutputAddress) -> Report {
    tree::check(format, arena, root)
}
