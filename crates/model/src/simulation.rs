//! Simulates one machine under one policy: the cost of a trace on it.
//!
//! Every page that a trace touches has a number and, for each kind of access, a *slot* that says where its translation
//! is in the TLBs. A slot is set when a page is first touched, and again after its mapping changed. So an access costs
//! a read of the slot and a comparison with the key last used in its set, or a lookup in the set. Everything else
//! happens only at misses and faults.
//!
//! `setup` does not change; `hardware` are the TLBs and walkers of all threads, `lineage` the processes with their
//! `pages`, `lookup` the lookups of one block of runs.

mod core;
mod hardware;
mod keys;
mod lineage;
mod lookup;
mod lookups;
mod outcome;
mod pages;
mod paths;
mod processes;
mod served;
mod setup;
mod slot;
mod state;

pub(crate) use keys::Hashing;
pub use lineage::MAX_PROCESSES;
pub use outcome::{Found, Mapped, Misses, Outcome, SizeMisses};
pub use state::Simulation;
