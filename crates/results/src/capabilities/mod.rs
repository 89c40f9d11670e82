//! The matrix of capabilities: which page each kind of memory can get.

pub mod diff;
pub mod json;
mod notes;
pub mod table;

pub(crate) use notes::{Notes, reason_of, short};
pub(crate) use table::{LEGEND, grouped, heading, ways};
