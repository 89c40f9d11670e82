//! What the built-in workloads are made of: guests on /dev/kvm, generated code, memory and fork, work of the kernel, QEMU's code
//! buffer.
//!
//! A workload is a program like any other: it knows neither the tracer nor the census, and nothing here asks who runs it.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod jit;
pub mod kernel;
pub mod kvm;
pub mod memory;
pub mod random;
pub mod tcg;
