//! QEMU as an independent oracle: machines that it emulates are given tables of the engine's making, and must
//! translate every address as [`paging::Tables::translate`] does.
//!
//! What QEMU bears although the architecture does not is a list, in [`leniency`]; each entry of it is tested.

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
