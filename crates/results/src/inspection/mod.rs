//! An inspection of a process as text for a terminal, and as a JSON document.

pub mod collapsing;
pub mod json;
mod many;
mod one;
pub mod openmetrics;
mod regions;
mod why;
pub(crate) mod words;

pub(crate) use json::cause;
pub use many::processes;
pub use one::{answer_first, process, refused, summary};
pub use regions::regions;
pub(crate) use words::cause_clause;
pub use words::sizes;
