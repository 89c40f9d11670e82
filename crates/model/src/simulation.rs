//! One machine under one policy: what a trace costs on it.
//!
//! Every page that a trace touches has a number, and for each kind of access a *slot* that says where its translation is
//! in the TLBs; a slot is made when a page is touched first and again after its mapping changed. So an access costs a
//! slot and a look at what its set was asked for last, or into the set; all else happens at misses and faults.
//!
//! `setup` does not change; `hardware` are the TLBs and walkers of all threads, `lineage` the processes with their `pages`,
//! `lookup` what one block of runs asks for.

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
pub use lineage::MOST_PROCESSES;
pub use outcome::{Found, Mapped, Misses, Outcome, SizeMisses};
pub use state::Simulation;
