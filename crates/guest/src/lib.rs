//! Kernels that are booted in QEMU: what is booted, with which words, and the first process inside.
//!
//! ```text
//! image ─► Image { architecture, release } ─┐
//! modules beside it, in their order ────────┼─► initrd ─► QEMU (Machine::words) ─► first process ─► the job
//! pagelab, with its libraries ──────────────┘                                        │
//!        the host's files, read-only (9p), below memory (overlayfs, tmpfs) ◄─────────┘
//! ```
//! The guest has the host's files, or those of a system in a directory, and nothing of what is written there is the host's. What is to be done is in its initrd, and what
//! comes of it goes through one port ([`PORT`]) into QEMU's standard output. So no file with a name is made on the host, and
//! nothing lies about when pagelab is killed.
//!
//! This crate starts no process on the host: who boots a guest holds it on a leash. It knows no policy and no study, and what a job is
//! decides who gives it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cpio;
mod elf;
mod file;
pub mod first;
mod image;
mod initrd;
mod machine;
mod modules;
mod own;
mod sysroot;

pub use image::{Architecture, Image, ImageError};
pub use initrd::{InitrdError, initrd};
pub use machine::{Accelerator, Machine};
pub use modules::{Module, ModulesError, find as modules};
pub use sysroot::{Sysroot, SysrootError};

/// The port through which a guest says what came of its job, as /sys/class/virtio-ports has it.
pub const PORT: &str = "pagelab.0";

/// The argument of the first process, which tells it from other ways to run pagelab.
pub const FIRST: &str = "guest-first";

/// What stands in front of the lines on the console that are of the first process.
pub const SAYS: &str = "pagelab guest: ";
