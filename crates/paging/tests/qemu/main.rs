//! QEMU as an independent oracle: emulated machines use tables that the engine created, and must translate every
//! address as [`paging::Tables::translate`] does.
//!
//! [`leniency`] lists the architecture violations that QEMU tolerates; each entry is tested.

mod arm64;
mod flips;
mod gdb;
mod leniency;
mod machine;
mod monitor;
mod random;
mod riscv;
mod verdict;
mod world;
mod x86_64;
