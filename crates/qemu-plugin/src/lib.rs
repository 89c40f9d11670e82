// SPDX-License-Identifier: GPL-2.0-or-later
//! The recorder inside QEMU: a plugin that records the memory accesses of a program or a whole machine as a trace.
//!
//! # How it works
//!
//! - `install`: the entry point; `abi`: the callbacks, by version of QEMU's API; `api`: the functions of the API, looked up by
//!   name; `request`: the arguments.
//! - `plugin`: the state, in one static value.
//! - `process`: beginning, threads, calls, children and end; `program` and `system`: translation blocks of a program or of a
//!   machine; `accesses`: the callbacks when they execute; `reported`: cached information from QEMU about accesses.
//! - `vcpu`: every vCPU has its own buffers, to which its callbacks append without locks, hashing or allocation; `schedule`: when
//!   recording is on; `vcpus`: which thread may use them when the process ends; `processors`: how many of a machine's processors
//!   are complete.
//! - `touched`: detects a thread's first touch of a page, whose time is recorded where there are several threads or processes;
//!   `freed_ranges`: address ranges whose next touch is a first touch again.
//! - `recorder`: full buffers become chunks, chunks become blocks of the file; `output_file`: address-space events precede them;
//!   `file`: the file, which is opened again if the program closes it; `no_link`: its path, on which no link is followed.
//! - `call`: the effect of a system call on the address space, by architecture; `kernel_accesses`: the program's memory that the
//!   kernel reads and writes in it; `x86_64`: how instructions access memory.
//! - `guest_memory`: which memory is the program's, what it holds before the first call, and the location of a machine's memory.
//!
//! Its licence is QEMU's, because it is loaded into QEMU. The only part of pagelab that it uses is the trace format.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod accesses;
mod api;
mod call;
mod exec;
mod file;
mod freed_ranges;
mod guest_memory;
mod install;
mod kernel_accesses;
mod no_link;
mod output_file;
mod plugin;
mod process;
mod processors;
mod program;
mod recorder;
mod reported;
mod request;
mod schedule;
mod system;
mod touched;
mod vcpu;
mod vcpus;
mod x86_64;
