// SPDX-License-Identifier: GPL-2.0-or-later
//! The recorder inside QEMU: a plugin that writes what a program or a whole machine touches as a trace.
//!
//! # How it works
//!
//! - `vcpu`: every vCPU has buffers of its own, which its callbacks append to: no lock, no hash, no allocation there.
//! - `abi`: what QEMU calls, by version of its API; `process`: what is done then for a process; `program`: for its
//!   blocks of instructions; `accesses`: when they execute.
//! - `known`: accesses that need no callback, because they lie at a known distance from one that has; `x86_64`: which.
//! - `streams`: runs while they are made; `words`: accesses, where every address is kept.
//! - `recorder`: full buffers become chunks, chunks become blocks of the file; address-space events go before them.
//! - `call`: what a system call does to the address space, by architecture.
//! - `kernel_accesses`: what the kernel reads and writes of the program's memory in a system call.
//! - `guest_memory::regions`: memory that was there before the first call, as far as QEMU's own map tells.
//! - `guest_memory::owned`: which memory is the program's, where QEMU's own is among it.
//! - `guest_memory::startup`: what a program finds when it begins, and what was written for it.
//! - `system` and `guest_memory::ram`: a whole machine, whose addresses are physical.
//! - `file`: the file, which the program cannot close.
//! - `shared`: memory that survives QEMU, in which stands what is not in the file yet.
//! - `api`: what is used of QEMU's plugin API, found by name.
//!
//! Its licence is QEMU's, in which it is loaded. It knows nothing of pagelab but the format of traces.

mod abi;
mod accesses;
mod api;
mod call;
mod file;
mod guest_memory;
mod kernel_accesses;
mod known;
mod process;
mod processors;
mod program;
mod recorder;
mod request;
mod shared;
mod streams;
mod system;
mod vcpu;
mod vcpus;
mod words;
mod x86_64;
