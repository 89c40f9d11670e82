//! Checks whether tables comply with the rules of their architecture: as they are ([`check`]), and while they change
//! ([`live`]).
//!
//! The rules are derived from what hardware may do with entries, not from how [`crate::Tables`] creates them. So the
//! checker finds faults of that code as well as faults in a dump.

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

/// Checks every entry of tables.
///
/// ```
/// use paging::check::{check, check_arena};
/// use paging::format::x86_64::X86_64;
/// use paging::{Arena, Attributes, Flags, InputAddress, Mapping, OutputAddress, Sizes, Tables};
///
/// let format = X86_64::new(4, 46);
/// let mut tables = Tables::new(format, OutputAddress(1 << 30), 1 << 20)?;
/// let attributes = Attributes::new(Flags::READ | Flags::USER);
/// let (va, pa) = (InputAddress(0), OutputAddress(1 << 32));
/// tables.map(&Mapping { va, pa, bytes: 4096, attributes, sizes: Sizes::BEST })?;
/// assert!(check(&tables).is_legal());
///
/// // The same memory with bit 51 set in the root's first entry: this processor has 46 bits of address.
/// let mut image = tables.arena().image();
/// let at = (tables.root().0 - tables.arena().base().0) as usize;
/// image[at + 6] |= 1 << 3;
/// let report = check_arena(&format, &Arena::from_image(tables.arena().base(), &image)?, tables.root());
/// assert!(!report.is_legal());
/// assert_eq!((report.faults[0].level_name.as_str(), report.faults[0].pa), ("PML4", tables.root()));
/// # Ok::<(), paging::Error>(())
/// ```
pub fn check<F: Format, L: Log>(tables: &Tables<F, L>) -> Report {
    check_arena(tables.format(), tables.arena(), tables.root())
}

/// Checks every entry of the tables whose root is at `root`, in memory that may hold anything. A table is checked once
/// for each level at which it is found.
pub fn check_arena(format: &impl Format, arena: &Arena, root: OutputAddress) -> Report {
    tree::check(format, arena, root)
}
