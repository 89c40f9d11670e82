//! The interface between a simulation and address spaces, independent of the format of their tables.

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

/// An address space, independent of its table format.
pub trait Space: Send {
    /// The leaf that maps `va` after all faults that a load or a store causes.
    ///
    /// # Errors
    /// Memory is exhausted, or the tables cannot translate the address.
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError>;

    /// Bytes of the largest aligned block around `va`, which `leaf` maps, whose memory is contiguous and aligned: at
    /// most sixteen leaves, or the contiguous group.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64;

    /// The entries that a walk to `va`, which is mapped, reads.
    fn path(&self, va: u64) -> Path;

    /// The physical address of `va`, if it is mapped.
    fn physical(&self, va: u64) -> Option<Pa>;

    /// log2 of the bytes that an entry of each level spans.
    fn shifts(&self) -> [u8; LEVELS];

    /// Processes a system call of the program.
    ///
    /// # Errors
    /// As [`Space::access`], because a call can populate memory.
    fn event(&mut self, event: &Event) -> Result<(), SpaceError>;

    /// Writes a page on behalf of the program when its call is served. Faults for this do not count as the program's.
    ///
    /// # Errors
    /// As [`Space::access`].
    fn write_for(&mut self, va: u64) -> Result<(), SpaceError>;

    /// Inspects memory that a call is about to free; `is_looked_at` says whether `pagelab compare` would inspect it.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn look_at(&mut self, begin: u64, bytes: u64, is_looked_at: bool) -> Result<(), SpaceError>;

    /// Notes that a call was answered without the kernel.
    fn note_answered(&mut self, said: &str);

    /// Notes why memory is not mapped as the policy requests, and how many bytes.
    fn note_cause(&mut self, cause: &Cause, bytes: u64);

    /// Notes that a call fails that succeeded when it was recorded.
    fn note_refused(&mut self);

    /// Takes the ranges (first address and bytes) that were dropped from all TLBs since the previous call.
    fn take_invalidations(&mut self) -> Vec<(u64, u64)>;

    /// Takes the ranges whose next accesses must be reported although nothing was dropped from the TLBs, because
    /// reclaim has cleared their accessed bits.
    fn take_forgotten(&mut self) -> Vec<(u64, u64)>;

    /// Adds a range that no event describes as anonymous memory; under a direct map, as memory of the machine.
    ///
    /// # Errors
    /// The arena of the tables is full.
    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError>;

    /// Sets the kernel settings other than the policy; the defaults are Linux's.
    fn set_kernel(&mut self, kernel: Kernel);

    /// Advances the time to `instructions` executed by the program. The kernel's periodic work that is due runs now.
    ///
    /// # Errors
    /// Memory is exhausted, or tables cannot be walked, which no operation causes.
    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError>;

    /// Copies the running process, as fork does, and returns the copy's number. The first process has the number 0.
    ///
    /// # Errors
    /// The arena of the copy's tables is full.
    fn fork(&mut self) -> Result<u32, SpaceError>;

    /// Switches to another process; `false` if it has ended or never existed.
    fn enter(&mut self, process: u32) -> bool;

    /// Gives the running process empty memory of its own, for a program that it executes, and returns its new number.
    /// With `shares` its old memory belongs to its parent and stays; otherwise the exec call was processed and its old
    /// memory is already gone.
    ///
    /// # Errors
    /// The arena of its tables is full.
    fn exec(&mut self, shares: bool) -> Result<u32, SpaceError>;

    /// Ends a process that is not running: its mapped memory is counted and freed.
    ///
    /// # Errors
    /// Tables cannot be walked, which no operation causes.
    fn end(&mut self, process: u32) -> Result<(), SpaceError>;

    /// The costs so far.
    fn costs(&self) -> Costs;

    /// Counts the memory that the tables of all processes map, by walking them.
    ///
    /// # Errors
    /// The tables are not a tree, which no operation causes.
    fn census(&self) -> Result<Census, Error>;

    /// The memory that every process had mapped when it ended, and that the others have mapped now.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn census_at_ends(&self) -> Result<Census, Error>;

    /// Whether the policy held on all memory, and why not.
    ///
    /// # Errors
    /// As [`Space::census`].
    fn verdict(&self) -> Result<Verdict, Error>;

    /// The part of this verdict that `pagelab compare` leaves out.
    fn left_out(&self) -> LeftOut;
}
