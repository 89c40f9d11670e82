//! Policies: which page sizes they ask for, and whether memory has them.
//!
//! Everything here is plain data and pure functions: no files, no processes, no clocks, and no other crate of this project. Two
//! platforms carry it out: the tracer with the system calls of a stopped task, and the model with its VMAs. Neither has rules of
//! its own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod call;
pub mod carry_out;
pub mod cause;
pub mod census;
pub mod cut;
pub mod decide;
pub mod guards;
pub mod heap;
pub mod hugetlb;
pub mod inspect;
pub mod intent;
pub mod judge;
pub mod looks;
pub mod mechanism;
pub mod pool;
pub mod ranges;
pub mod remains;
pub mod remedy;
pub mod removal;
pub mod size;
pub mod verdict;

pub use decide::{Actions, Space, decide};
pub use intent::{DirectMapLeaves, Granularity, Modifier, PageSizes, Policy, PolicyError};
pub use mechanism::Mechanism;
