//! The running Linux host as a platform: applying, tracing, verifying and explaining page sizes.
//!
//! Beside `qemu-plugin` the only crate with unsafe code; every unsafe block says why it is sound.

pub mod admit;
pub mod census;
pub mod child;
pub mod counters;
pub mod direct_map;
pub mod environment;
pub mod explain;
pub mod host;
pub mod jit;
pub mod kvm;
pub mod lease;
pub mod memory;
mod minder;
pub mod platform;
pub mod signals;
mod terminal;
pub mod tracer;
pub mod user;
