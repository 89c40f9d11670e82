//! The kernel's direct map: its own mapping of all memory, in leaves as large as boot and later changes
//! leave them.
//!
//! [`leaves`] reads what is there, [`Status`] says why and what this boot can still give. Nothing joins leaves again that
//! were split: set_direct_map_default leaves split leaves split, and the kernel rebuilds large ones only after
//! set_memory_rox (Linux 6.15, arch/x86/mm/pat/set_memory.c).

mod changes;
mod config;
mod features;
mod leaves;
mod marker;
mod ptdump;
mod reading;
mod remainder;
mod standing;
mod status;

pub use changes::{Changes, changes};
pub use config::KernelConfig;
pub(crate) use features::cost_of_leaves;
pub use features::{Feature, features};
pub use leaves::{Leaves, Source};
pub use marker::{MARKER_FILE, Marker, MarkerError, mark_of};
pub(crate) use reading::counted_leaves;
pub use reading::leaves;
pub use remainder::Remainder;
pub use standing::{Standing, standing, standings};
pub use status::{Status, status};
