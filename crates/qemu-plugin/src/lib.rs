// SPDX-License-Identifier: GPL-2.0-or-later
//! The recorder inside QEMU: a plugin that writes what a program or a whole machine touches as a trace.
//!
//! # How it works
//!
//! - `install`: QEMU's entrance; `abi`: what QEMU calls then, by version of its API; `api`: what is used of that, found by
//!   name; `request`: what is asked for.
//! - `plugin`: the state of all this, one static value.
//! - `process`: beginning, threads, calls, children and end; `program` and `system`: blocks of instructions of a program or
//!   of a machine; `accesses`: what is done when they execute;
//!   `told`: what QEMU has told of accesses.
//! - `vcpu`: every vCPU has buffers of its own, which its callbacks append to: no lock, no hash, no allocation there;
//!   `schedule`: when; `vcpus`: who may use them when the process ends; `processors`: which of a machine's are done.
//! - `touched`: what tells a thread's first touch of a page, whose time is recorded where there are more threads or processes;
//!   `forgotten`: calls after which a touch is the first again; `clock`: that time.
//! - `recorder`: full buffers become chunks, chunks become blocks of the file; `unwritten`: address-space events go before
//!   them; `file`: the file, which the program cannot close; `no_link`: its path, on which no link is followed.
//! - `call`: what a system call does to the address space, by architecture; `kernel_accesses`: what the kernel reads and
//!   writes of the program's memory in it; `x86_64`: what instructions do to memory.
//! - `guest_memory`: which memory is the program's, what was there before the first call, where a machine has its own.
//!
//! Its licence is QEMU's, in which it is loaded. It knows nothing of pagelab but the format of traces.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod accesses;
mod api;
mod call;
mod clock;
mod exec;
mod file;
mod forgotten;
mod guest_memory;
mod install;
mod kernel_accesses;
mod no_link;
mod plugin;
mod process;
mod processors;
mod program;
mod recorder;
mod request;
mod schedule;
mod system;
mod told;
mod touched;
mod unwritten;
mod vcpu;
mod vcpus;
mod x86_64;
