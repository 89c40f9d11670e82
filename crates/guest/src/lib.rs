//! Kernels booted in QEMU: the image, the arguments of QEMU, and the first process inside the guest.
//!
//! ```text
//! image ─► Image { architecture, release } ─┐
//! modules next to it, in order ─────────────┼─► initrd ─► QEMU (Machine::words) ─► first process ─► the job
//! pagelab, with its libraries ──────────────┘                                        │
//! the host's files, read-only (9p), below memory (overlayfs, tmpfs) ◄────────────────┘
//! ```
//! The guest uses the host's files, or those of a system in a directory, and writes nothing back to the host. The initrd contains
//! the job. Its result is written to one port ([`PORT`]), which is QEMU's standard output. Therefore no file with a name is
//! created on the host, and nothing is left over when pagelab is killed.
//!
//! This crate starts no process on the host: the caller that boots a guest also makes sure that it ends. It knows no policy and no
//! study. The caller defines the content of a job.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
pub mod cpio;
mod elf;
mod file;
pub mod first;
mod image;
mod initrd;
mod machine;
mod memory_groups;
mod modules;
mod own;
mod swap;
mod sysroot;

pub use config::{Options, find as config};
pub use image::{Architecture, Image, ImageError};
pub use initrd::{InitrdError, initrd};
pub use machine::{Accelerator, Machine};
pub use memory_groups::{MemoryGroupsError, memory_groups_on};
pub use modules::{Module, ModulesError, find as modules, find_existing as existing_modules};
pub use swap::{MODULES as SWAP_MODULES, SwapError, swap_on};
pub use sysroot::{Sysroot, SysrootError};

/// The port to which a guest writes the result of its job, by its name in /sys/class/virtio-ports.
pub const PORT: &str = "pagelab.0";

/// The argument of the first process. It distinguishes the first process from other uses of pagelab.
pub const FIRST: &str = "guest-first";

/// The prefix of the first process's lines on the console.
pub const SAYS: &str = "pagelab guest: ";
