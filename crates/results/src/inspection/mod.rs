//! An inspection as text for a terminal, and as a document.

pub mod collapsing;
pub mod json;
mod many;
mod one;
pub mod openmetrics;
mod regions;
mod why;
pub(crate) mod words;

pub use many::processes;
pub use one::process;
pub use regions::regions;
pub use words::sizes;
