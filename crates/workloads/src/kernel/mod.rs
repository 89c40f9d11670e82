//! Workloads that live in the kernel: what they touch is the kernel's memory, so what maps *that* decides.
//!
//! They are the kinds of benchmarks that were run on the three sizes of the direct map in 2021 (scheduling, system
//! calls, faults, processes, sockets, files), and one that reads through the direct map at random: [`memfd_pread`].
//! [`syscalls`] is the control, which no page size changes. Each does a fixed amount of work, so that its sum depends on the
//! amount and the seed alone and every arm does the same. `PER_SECOND` of each is how many operations one 2.5 GHz core without a
//! hypervisor does in about a second.
#![expect(clippy::disallowed_methods, reason = "no other user can enter the directory that such a workload is given")]

pub mod brk_growth;
pub mod directory_read;
pub mod file_churn;
pub mod fork_exec;
pub mod mapped_read;
pub mod memfd_pread;
pub mod messaging;
pub mod page_cache;
pub mod page_faults;
pub mod pipe_switch;
pub mod sockets;
pub mod syscalls;

use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

use crate::memory::{ForkError, HeapError, MapError};

/// What every one is asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many operations.
    pub operations: u64,
    /// Seed of what is written and in which order.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Operations: those that were asked for, or as many more as make whole rounds.
    pub operations: u64,
    /// The sum of all that came back.
    pub sum: u64,
    /// What it must be.
    pub expected: u64,
    /// How long the operations took, without what prepares them, in seconds.
    pub total_s: f64,
}

/// A workload that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A system call that the workload is made of.
    #[error("cannot {call}: {source}; `ulimit -a` shows the limits of this session, dmesg what the kernel says")]
    Refused {
        /// The call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Memory could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The fork failed, or its child.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The heap could not be grown.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// Whoever runs the workload told it to stop.
    #[error("stopped by signal {0}")]
    Stopped(i32),
}

/// Which signal told the program to stop, if one did. Workloads that have files ask for it between their rounds.
pub type Stopped<'a> = &'a dyn Fn() -> Option<i32>;

impl Done {
    /// Times `work`, which does `operations` operations and hands back a sum.
    fn of(
        operations: u64,
        expected: u64,
        work: impl FnOnce() -> Result<u64, KernelError>,
    ) -> Result<Done, KernelError> {
        let start = Instant::now();
        let sum = work()?;
        Ok(Done { operations, sum, expected, total_s: start.elapsed().as_secs_f64() })
    }
}

/// Says which call the kernel refused.
fn refused(call: &'static str) -> impl Fn(io::Error) -> KernelError {
    move |source| KernelError::Refused { call, source }
}

/// Ends a workload that was told to stop.
fn go_on(stopped: Stopped<'_>) -> Result<(), KernelError> {
    stopped().map_or(Ok(()), |signal| Err(KernelError::Stopped(signal)))
}

/// The name of the file number `number`.
fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}"))
}

/// Starts a thread of a workload. What it waits for must end when its starter returns, with an error too: the scope
/// waits for it.
fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, KernelError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(refused("start a thread"))
}

/// What a thread of a workload came to.
fn joined<T>(ended: thread::Result<Result<T, KernelError>>) -> Result<T, KernelError> {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
