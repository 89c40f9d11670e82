//! What a simulation asks of address spaces, whatever the format of their tables.

use ::policy::cause::Cause;
use ::policy::verdict::Verdict;
use paging::{Census, Error};
use trace::Event;

use super::cost::Costs;
use super::error::SpaceError;
use super::leaf::{LEVELS, Leaf, Path};
use super::seen::LeftOut;
use crate::address::Pa;
use crate::kernel::Kernel;

/// An address space without its format.
pub trait Space: Send {
    /// What maps `va`, after as many faults as it takes for a load or a store.
    ///
    /// # Errors
    /// Memory is used up, or no table can hold the address.
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError>;

    /// Bytes of the largest aligned block around `va`, which `leaf` maps, whose memory is contiguous and aligned: of up to
    /// sixteen leaves, or the contiguous group.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64;

    /// What a walk to `va`, which is mapped, reads.
    fn path(&self, va: u64) -> Path;

    /// The physical address behind `va`, if anything maps it.
    fn physical(&self, va: u64) -> Option<Pa>;

    /// log2 of the bytes that an entry of each level spans.
    fn shifts(&self) -> [u8; LEVELS];

    /// A system call of the program.
    ///
    /// # Errors
    /// As [`Space::access`]: memory can be populated.
    fn event(&mut self, event: &Event) -> Result<(), SpaceError>;

    /// A page is written in the program's name, by who serves its calls: what that takes is no fault of the program's.
    ///
    /// # Errors
    /// As [`Space::access`].
    fn write_for(&mut self, va: u64) -> Result<(), SpaceError>;

    /// Memory is looked at that a call is about to give back; `is_looked_at` says whether `pagelab compare` does so.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn look_at(&mut self, begin: u64, bytes: u64, is_looked_at: bool) -> Result<(), SpaceError>;

    /// Notes that a call was answered in the kernel's place.
    fn note_answered(&mut self, said: &str);

    /// Notes why memory is not as the policy asks, and how much.
    fn note_cause(&mut self, cause: &Cause, bytes: u64);

    /// Notes that a call fails which succeeded when it was recorded.
    fn note_refused(&mut self);

    /// Takes the ranges (first address and bytes) that were dropped from all TLBs since the last time.
    fn take_invalidations(&mut self) -> Vec<(u64, u64)>;

    /// Takes the ranges whose next accesses are to be told though nothing was dropped from the TLBs: reclaim has
    /// cleared their accessed bits.
    fn take_forgotten(&mut self) -> Vec<(u64, u64)>;

    /// A stretch of memory that no event tells of, as anonymous memory; memory of the machine under a direct map.
    ///
    /// # Errors
    /// The tables have no room.
    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError>;

    /// What the kernel does besides the policy; its defaults are Linux's.
    fn set_kernel(&mut self, kernel: Kernel);

    /// Tells the time: instructions that the program has executed. What the kernel does by the clock is done now.
    ///
    /// # Errors
    /// Memory is used up, or tables cannot be walked, which no operation makes.
    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError>;

    /// Makes a copy of the running process, as fork does, and gives its number. The first process has the number 0.
    ///
    /// # Errors
    /// The copy's tables have no room.
    fn fork(&mut self) -> Result<u32, SpaceError>;

    /// Goes on as another process; `false` if it has ended or never was.
    fn enter(&mut self, process: u32) -> bool;

    /// Gives the running process memory of its own with nothing in it, for a program that it executes, and gives its number.
    /// `shares`: what it had is its parent's, and stays; else the call was heard, and nothing is left of it.
    ///
    /// # Errors
    /// Its tables have no room.
    fn exec(&mut self, shares: bool) -> Result<u32, SpaceError>;

    /// Ends a process that is not running: what it has mapped is counted and given back.
    ///
    /// # Errors
    /// Tables that cannot be walked, which no operation makes.
    fn end(&mut self, process: u32) -> Result<(), SpaceError>;

    /// What it has cost so far.
    fn costs(&self) -> Costs;

    /// What the tables of all processes map, by walking them.
    ///
    /// # Errors
    /// Tables that are no tree, which no operation makes.
    fn census(&self) -> Result<Census, Error>;

    /// What every process had mapped when it ended, and those that have not ended have now.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn census_at_ends(&self) -> Result<Census, Error>;

    /// Whether the policy held on all memory that there was, and why not.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn verdict(&self) -> Result<Verdict, Error>;

    /// What `pagelab compare` leaves out of such a verdict.
    fn left_out(&self) -> LeftOut;
}
