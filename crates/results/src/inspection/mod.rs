//! An inspection as text for a terminal, and as a document.

pub mod json;
mod many;
mod one;
mod regions;
mod words;

pub use many::processes;
pub use one::process;
pub use regions::regions;
