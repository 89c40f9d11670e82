//! Programs on the running kernel beside their simulations: what `pagelab compare --prove-all` measures, and what `pagelab
//! record` and `pagelab sim` say of the same program.
//!
//! [`lab`] runs both and reads figures, [`launch`] starts a program so that it maps the same on both sides, [`script`] makes
//! random programs, which `shrink` makes small again, and [`scripts`] finds what of them is off; [`kinds`]
//! knows what differs for reasons that are known. `cargo xtask truth` and tests
//! stand on it. It uses nothing else of this workspace.

#![forbid(unsafe_code)]

mod compaction;
pub mod kinds;
pub mod lab;
pub mod launch;
pub mod script;
pub mod scripts;
mod shrink;

pub use compaction::compact;
