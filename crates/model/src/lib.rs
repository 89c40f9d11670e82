//! Model machines: what a recorded trace costs on a processor that is not at hand, under any page-size policy.
//!
//! # The language
//!
//! - **machine**: TLBs, walk caches and walkers of a processor, as a file describes them; every number cites its source
//!   or says that it is assumed.
//! - **stored size**: the bytes that one TLB entry covers. A page larger than what a TLB holds is stored as the largest
//!   size that it does hold; neighbouring pages can be stored as one (*coalescing*).
//!
//! Deterministic: no clock, no file; a seed is a number that is handed in.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
mod call;
pub mod chase;
mod fold;
mod kernel;
mod lack;
mod layout;
pub mod machine;
pub mod policy;
mod promise;
pub mod replay;
pub mod simulation;
pub mod space;
pub mod tlb;
pub mod tlb_geometry;
pub mod toml_file;
pub mod walk;
