//! QEMU's TCG code buffer: the rule that divides it, its address, and how many huge pages can map it.

mod layout;
mod placement;
mod rule;

pub use layout::{BUFFER_BYTES, HIGHWATER_BYTES, Layout, TooManyRegions};
pub use placement::{Placement, Windows};
pub use rule::{Rule, Version};
