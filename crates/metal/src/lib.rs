//! The running Linux host as a platform: applying, tracing, verifying and explaining page sizes.
//!
//! The only crate with unsafe code; every unsafe block says why it is sound.
pub mod admit;
pub mod census;
pub mod explain;
pub mod counters;
pub mod memory;
pub mod signals;
pub mod tracer;
pub mod host;
pub mod lease;
