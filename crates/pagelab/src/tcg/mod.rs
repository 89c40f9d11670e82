//! QEMU's TCG code buffer: the rule that divides it, and what that does to huge pages.

pub mod listing;
pub mod rule;
