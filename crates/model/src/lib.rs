//! Model machines: the cost of a recorded trace on a processor that need not be available, under any page-size policy.
//!
//! # The language
//!
//! - **machine**: TLBs, walk caches and walkers of a processor, described by a file. Every number cites its source or
//!   is marked as assumed.
//! - **stored size**: the bytes that one TLB entry covers. A page larger than the TLB's sizes is stored as the largest
//!   size that it supports; neighbouring pages can be stored as one (*coalescing*).
//!
//! Deterministic: no clock, no files; the caller passes seeds in.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod address;
mod call;
pub mod chase;
mod fold;
mod kernel;
mod layout;
pub mod machine;
mod missing_feature;
pub mod policy;
mod promise;
pub mod replay;
pub mod simulation;
pub mod space;
pub mod tlb;
pub mod tlb_geometry;
pub mod toml_file;
pub mod walk;
