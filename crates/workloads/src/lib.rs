//! The building blocks of the built-in workloads: memory and fork, and work in the kernel.
//!
//! A workload is an ordinary program: it knows neither the tracer nor the census, and does not depend on who runs it.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod kernel;
pub mod memory;
pub mod random;
