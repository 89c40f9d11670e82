//! An inspection as text for a terminal.

mod table;

pub use table::{regions, summary};
