//! Compares programs on the running kernel with their simulations: the output of `pagelab compare --prove-all` with the output of
//! `pagelab record` and `pagelab sim` for the same program.
//!
//! [`lab`] runs both and reads their figures. [`launch`] starts a program so that its memory layout is the same on both sides.
//! [`script`] makes random programs, which `shrink` reduces, and [`scripts`] finds the figures that differ. [`kinds`] lists the
//! differences whose reasons are known. `cargo xtask truth` and tests use this crate, which depends on no other crate of this
//! workspace.

#![forbid(unsafe_code)]

mod alone;
pub mod kinds;
pub mod lab;
pub mod launch;
mod memory;
pub mod script;
pub mod scripts;
mod shrink;

pub use alone::Alone;
pub use memory::{StablePageCache, free_large_blocks};
