//! Policies: which page sizes they ask for, and whether memory has them.
//!
//! Everything here is plain data and pure functions: no files, no processes, no clocks, and no other crate of this project. Two
//! platforms apply it: the tracer makes system calls in a stopped task, and the model changes its VMAs. Neither adds rules.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod admission;
pub mod call;
pub mod capability;
pub mod carry_out;
pub mod cause;
pub mod census;
pub mod cut;
pub mod decide;
mod direct_map_leaves;
mod exit;
pub mod extent;
pub mod file_folios;
pub mod first_touch;
pub mod guards;
pub mod heap;
pub mod held_files;
pub mod hugetlb;
pub mod inspect;
pub mod intent;
pub mod judge;
mod kind;
pub mod machine;
pub mod mechanism;
mod policy_error;
pub mod pool;
pub mod ranges;
pub mod remains;
pub mod remedy;
pub mod removal;
pub mod requirement;
pub mod similar;
pub mod size;
pub mod verdict;
pub mod windows;

pub use admission::{Admission, Unsupported};
pub use decide::{Actions, Space, decide};
pub use direct_map_leaves::DirectMapLeaves;
pub use exit::Exit;
pub use intent::{Granularity, Modifier, PageSizes, Policy, PolicyError};
pub use mechanism::Mechanism;
