//! Model machines: what a recorded trace would cost on a processor under a page-size policy, without that processor.
//!
//! # The language
//!
//! - **machine**: TLBs, walk caches and walkers of a processor, described by a file. Every number has a source, or is marked
//!   as assumed.
//! - **stored size**: the bytes that one TLB entry covers. A TLB stores a page that is larger than its sizes as the largest of
//!   them. It can store neighbouring pages in one entry (*coalescing*).
//!
//! Deterministic: no clock, no files; the caller passes seeds in.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accounting;
pub mod address;
mod call;
pub mod chase;
pub mod costs;
mod kernel;
mod layout;
pub mod machine;
mod missing_feature;
pub mod policy;
mod relocation;
pub mod replay;
pub mod simulation;
pub mod space;
pub mod tlb;
pub mod tlb_geometry;
pub mod toml_file;
pub mod walk;
