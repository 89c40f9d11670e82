//! The matrix of capabilities: which page each kind of memory can get.

pub mod diff;
pub mod json;
mod notes;
pub mod table;
