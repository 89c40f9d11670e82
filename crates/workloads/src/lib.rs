//! The building blocks of the built-in workloads: guests on /dev/kvm, generated code, memory and fork, work in the kernel, and
//! QEMU's code buffer.
//!
//! A workload is an ordinary program: it knows neither the tracer nor the census, and does not depend on who runs it.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod jit;
pub mod kernel;
pub mod kvm;
pub mod memory;
pub mod random;
pub mod tcg;
