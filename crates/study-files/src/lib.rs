//! Studies: a question over several workloads, policies and machines, in one file. The statistics of a single comparison are those of the
//! crate `study`.
//!
//! Everything here is plain data and pure functions. [`definition`] reads a file; [`rounds`] says which workload to measure next;
//! [`matrix`] has all results and their totals; [`counted`] weighs numbers of events with costs; [`series`] has figures over sizes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod counted;
pub mod definition;
pub mod matrix;
pub mod rounds;
pub mod series;
