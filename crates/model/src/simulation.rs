//! Simulates the cost of a trace on one machine under one policy.
//!
//! Every page that a trace touches has a number and, for each kind of access, a *slot*, which says where its translation is in the
//! TLBs. A slot is set when a page is first touched, and again after its mapping has changed. So an access only reads the slot and
//! compares the key with the one used last in its set, or looks it up in the set. Everything else happens only at misses and
//! faults.
//!
//! `setup` has the constant parameters, `hardware` the TLBs and walkers of all threads, `processes` the processes with their
//! `pages`, and `lookup` the lookups of one block of runs.

mod change;
mod core;
mod fork;
mod hardware;
mod keys;
mod lookup;
mod lookups;
mod outcome;
mod pages;
mod paths;
mod processes;
mod setup;
mod slot;
mod state;

pub(crate) use keys::Hashing;
pub use outcome::{Mapped, Misses, Outcome, SizeMisses, WalkReferences};
pub use processes::MAX_PROCESSES;
pub use state::Simulation;
