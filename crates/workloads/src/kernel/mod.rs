//! Workloads that run in the kernel. They mostly touch the kernel's own memory, so the mapping of *that* memory decides their
//! speed.
//!
//! They resemble the benchmarks that were run on the three sizes of the direct map in 2021 (scheduling, system calls, faults,
//! processes, sockets, files); [`memfd_pread`] reads through the direct map at random addresses. [`syscalls`] is the control,
//! which no page size changes. Each workload does a fixed amount of work, so its sum depends only on the amount and the seed,
//! and is the same under every policy. Each module's `PER_SECOND` is the number of operations that one 2.5 GHz core without a
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

/// The parameters of every workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub operations: u64,
    /// Seed for the written data and the order.
    pub seed: u64,
}

/// The result of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// Number of operations: the requested number, rounded up to whole rounds.
    pub operations: u64,
    /// The sum of all values read.
    pub sum: u64,
    /// The correct value of the sum.
    pub expected: u64,
    /// Duration of the operations in seconds, without their preparation.
    pub total_s: f64,
}

/// Why a workload did not complete.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel refused a system call of the workload.
    #[error("cannot {call}: {source}; `ulimit -a` shows the limits of this session, dmesg what the kernel says")]
    Refused {
        /// The system call.
        call: &'static str,
        source: io::Error,
    },
    /// Memory could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The fork or its child failed.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The heap could not be grown.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// A signal stopped the program that runs the workload.
    #[error("stopped by signal {0}")]
    Stopped(i32),
}

/// The signal that stopped the program, if any. Workloads with files check it between their rounds.
pub type Stopped<'a> = &'a dyn Fn() -> Option<i32>;

impl Completed {
    /// Times `work`, which does `operations` operations and returns a sum.
    fn of(
        operations: u64,
        expected: u64,
        work: impl FnOnce() -> Result<u64, KernelError>,
    ) -> Result<Completed, KernelError> {
        let start = Instant::now();
        let sum = work()?;
        Ok(Completed { operations, sum, expected, total_s: start.elapsed().as_secs_f64() })
    }
}

/// An error with the call that the kernel refused.
fn refused(call: &'static str) -> impl Fn(io::Error) -> KernelError {
    move |source| KernelError::Refused { call, source }
}

/// Ends a workload if a signal has stopped the program.
fn check_stopped(stopped: Stopped<'_>) -> Result<(), KernelError> {
    stopped().map_or(Ok(()), |signal| Err(KernelError::Stopped(signal)))
}

/// The path of file `number`.
fn file(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}"))
}

/// Starts a thread of a workload. The scope waits for it, so it must end when its starter returns, even with an error.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, KernelError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(refused("start a thread"))
}

/// The result of a thread of a workload.
fn join<T>(ended: thread::Result<Result<T, KernelError>>) -> Result<T, KernelError> {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
