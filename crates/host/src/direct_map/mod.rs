//! The kernel's direct map: its mapping of all memory, whose leaf sizes depend on boot and later changes.
//!
//! [`leaves`] reads the current leaves; [`Status`] gives the reasons and what this boot can still provide. Split leaves are not
//! merged again: set_direct_map_default leaves them split, and the kernel rebuilds large ones only after set_memory_rox (Linux
//! 6.15, arch/x86/mm/pat/set_memory.c).

mod availability;
mod changes;
mod config;
mod features;
mod leaves;
mod marker;
mod ptdump;
mod reading;
mod remainder;
mod status;

pub use availability::{Availability, availabilities, availability};
pub use changes::{Changes, changes};
pub use config::KernelConfig;
pub(crate) use features::cost_of_leaves;
pub use features::{Feature, features};
pub use leaves::{Leaves, Source};
pub use marker::{MARKER_FILE, Marker, MarkerError, mark_of};
pub(crate) use reading::counted_leaves;
pub use reading::leaves;
pub use remainder::Remainder;
pub use status::{Status, status};
