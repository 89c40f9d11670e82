//! [`Machine`]: the address-translation hardware of a processor, read from a machine file.

mod ambiguity;
mod built_in;
mod error;
mod kernel_costs;
mod read;
mod shape;
mod stages;
mod wire;

pub use built_in::{BUILT_IN, built_in, built_in_file};
pub use error::MachineError;
pub use kernel_costs::{KernelCosts, KernelCycles, Zeroing};
pub use read::{SCHEMA, read};
pub use shape::{
    AccessKind, Architecture, Coalescing, Figure, LineCacheShape, MAX_TLB_LEVEL, Machine, Needs, Provenance, Reach,
    Replacement, Stage2, TableFormat, TlbShape, WalkCacheShape, WalkerShape,
};

#[cfg(test)]
mod tests;
