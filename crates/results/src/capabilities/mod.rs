//! The matrix of capabilities, which page each kind of memory can get on a kernel: as text, as JSON, and the
//! differences of two.

pub mod diff;
pub mod json;
mod notes;
pub mod table;

pub(crate) use notes::{Notes, reason_of, short};
pub(crate) use table::{LEGEND, grouped, heading, ways};
