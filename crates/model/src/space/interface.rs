//! The interface between a simulation and its address spaces, independent of the table format.

use ::policy::cause::Cause;
use ::policy::verdict::Verdict;
use paging::{Census, Error};
use trace::Event;

use super::error::SpaceError;
use super::leaf::{LEVELS, Leaf, Path};
use super::observations::LeftOut;
use crate::address::Pa;
use crate::costs::Costs;
use crate::kernel::Kernel;

/// The address spaces of all processes, one of which is running, independent of the table format.
pub trait Space: Send {
    /// Loads from or stores to `va`: handles the page faults, then returns the leaf that maps `va`.
    fn access(&mut self, va: u64, store: bool) -> Result<Leaf, SpaceError>;

    /// Size in bytes of the largest naturally aligned block around `va` that maps contiguous, equally aligned memory:
    /// at most sixteen leaves, or the contiguous group. `leaf` must map `va`.
    fn run_bytes(&self, va: u64, leaf: &Leaf) -> u64;

    /// The entries that a walk to `va` reads; `va` must be mapped.
    fn path(&self, va: u64) -> Path;

    /// The physical address of `va`, if it is mapped.
    fn physical(&self, va: u64) -> Option<Pa>;

    /// log2 of the bytes that an entry of each level spans.
    fn shifts(&self) -> [u8; LEVELS];

    /// Applies a system call of the program.
    fn event(&mut self, event: &Event) -> Result<(), SpaceError>;

    /// Writes a page on behalf of the program, as part of handling its call. These faults are not counted.
    fn write_for_program(&mut self, va: u64) -> Result<(), SpaceError>;

    /// Inspects memory before a call frees it. `by_compare` is `true` if `pagelab compare` would inspect it too.
    fn inspect(&mut self, begin: u64, bytes: u64, by_compare: bool) -> Result<(), SpaceError>;

    /// Counts a call that was answered without the kernel.
    fn note_answered(&mut self, call: &str);

    /// Adds a cause for memory that is not mapped as the policy requests, with its bytes.
    fn note_cause(&mut self, cause: &Cause, bytes: u64);

    /// Counts a call that fails here but succeeded when it was recorded.
    fn note_refused(&mut self);

    /// Takes the ranges (first address and bytes) that were invalidated in all TLBs since this was last called.
    fn take_invalidations(&mut self) -> Vec<(u64, u64)>;

    /// Takes the ranges in which reclaim has cleared the accessed bits. Their next accesses must be reported, although the
    /// TLBs keep their entries.
    fn take_cleared_accessed(&mut self) -> Vec<(u64, u64)>;

    /// Adds a range that no event describes: as anonymous memory, or, under a direct map, as memory of the machine.
    fn assume(&mut self, begin: u64, end: u64) -> Result<(), SpaceError>;

    /// Sets the kernel settings that do not belong to the policy; the defaults are Linux's.
    fn set_kernel(&mut self, kernel: Kernel);

    /// Advances the time to `instructions` executed by the program, and runs the periodic kernel work that is due.
    fn advance(&mut self, instructions: u64) -> Result<(), SpaceError>;

    /// Forks the running process and returns the number of the child. The first process has the number 0.
    fn fork(&mut self) -> Result<u32, SpaceError>;

    /// Switches to another process; `false` if it has ended or never existed.
    fn enter(&mut self, process: u32) -> bool;

    /// Gives the running process an empty address space for the program that it executes, and returns its new number.
    /// With `shares` the old address space is its parent's (vfork) and is kept. Otherwise the old one is removed; the exec
    /// call, applied before, has freed its memory.
    fn exec(&mut self, shares: bool) -> Result<u32, SpaceError>;

    /// Ends a process that is not running: counts its mapped memory, then frees it.
    fn end(&mut self, process: u32) -> Result<(), SpaceError>;

    /// The costs of all processes so far.
    fn costs(&self) -> Costs;

    /// The memory that all processes map now, counted by walking their tables.
    fn census(&self) -> Result<Census, Error>;

    /// The memory that ended processes had mapped at their end, plus the memory that the others map now.
    fn census_at_ends(&self) -> Result<Census, Error>;

    /// Whether the policy held on all memory, and the causes if it did not.
    fn verdict(&self) -> Result<Verdict, Error>;

    /// The memory in this verdict that `pagelab compare` does not inspect.
    fn left_out(&self) -> LeftOut;
}
