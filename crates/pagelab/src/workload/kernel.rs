//! Workloads that live in the kernel: what they touch is the kernel's memory, so what maps *that* decides.
//!
//! They are the kinds of benchmarks that were run on the three sizes of the direct map in 2021 (scheduling, system
//! calls, faults, processes, sockets, files), and one that reads through the direct map at random: `memfd-pread`.
//! `syscalls` is the control, which no page size changes. Each does a fixed amount of work for a given `--seconds`, so
//! that its checksum depends on the arguments alone and every arm does the same.

mod brk_growth;
mod directory_read;
mod exec;
mod file_churn;
mod memfd_pread;
mod messaging;
mod page_faults;
mod pipe_switch;
mod scratch;
mod sockets;
mod syscalls;

use std::io;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

use super::report::Report;
use super::{WorkloadError, check};

/// What every one is asked.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// How much work: about as many seconds of one 2.5 GHz core without a hypervisor; the same work on every machine
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seed of what is written and in which order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The workloads.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Kernel {
    /// Twenty threads send to twenty others over sockets: the scheduler and small copies
    SchedMessaging(Work),
    /// Two threads hand a byte back and forth through pipes: context switches
    PipeSwitch(Work),
    /// Ask for the parent's process number: bare system calls, the control
    Syscalls(Work),
    /// Map 64M, write to each base page, unmap: page faults
    PageFaults(Work),
    /// Grow the heap by the program break, write to it and shrink it
    BrkGrowth(Work),
    /// Fork, execute a program that does nothing, wait for it
    ForkExec(exec::Arguments),
    /// Send blocks through a pair of Unix sockets
    UnixSocket(Work),
    /// Send blocks through a TCP connection of this machine with itself
    TcpLoopback(Work),
    /// Create, stat and unlink files
    FileChurn(scratch::Arguments),
    /// Read a directory of 4,096 files
    DirectoryRead(scratch::Arguments),
    /// Read 64 bytes at random places of a large file in memory: the direct map's TLB misses
    MemfdPread(memfd_pread::Arguments),
}

impl Kernel {
    /// Runs it.
    ///
    /// # Errors
    /// Bad arguments, what the kernel refuses, or a wrong answer.
    pub fn run(&self) -> Result<Report, WorkloadError> {
        match self {
            Kernel::SchedMessaging(arguments) => messaging::run(arguments),
            Kernel::PipeSwitch(arguments) => pipe_switch::run(arguments),
            Kernel::Syscalls(arguments) => syscalls::run(arguments),
            Kernel::PageFaults(arguments) => page_faults::run(arguments),
            Kernel::BrkGrowth(arguments) => brk_growth::run(arguments),
            Kernel::ForkExec(arguments) => exec::run(arguments),
            Kernel::UnixSocket(arguments) => sockets::unix(arguments),
            Kernel::TcpLoopback(arguments) => sockets::tcp(arguments),
            Kernel::FileChurn(arguments) => file_churn::run(arguments),
            Kernel::DirectoryRead(arguments) => directory_read::run(arguments),
            Kernel::MemfdPread(arguments) => memfd_pread::run(arguments),
        }
    }
}

impl Work {
    /// How many operations that is, at `per_second` of them.
    fn operations(&self, per_second: u64) -> Result<u64, WorkloadError> {
        let operations = self.seconds * per_second as f64;
        if operations.is_finite() && (1.0..=1e15).contains(&operations) {
            return Ok(operations as u64);
        }
        let least = 1.0 / per_second as f64;
        let expected = format!("from {least:.6} to {:.0} seconds of work", 1e15 / per_second as f64);
        Err(WorkloadError::Argument { option: "seconds", expected, found: self.seconds.to_string() })
    }

    /// Runs `work`, which does `operations` operations, each of them `of`, and checks the sum that it hands back.
    fn measure(
        &self,
        name: &'static str,
        operations: u64,
        expected: u64,
        work: impl FnOnce() -> Result<u64, WorkloadError>,
    ) -> Result<Report, WorkloadError> {
        let start = Instant::now();
        let sum = work()?;
        let total_s = start.elapsed().as_secs_f64();
        check("the sum of all that came back", expected, sum)?;
        Ok(Report::new(name, super::random::mix(sum ^ self.seed))
            .argument("seconds", self.seconds)
            .argument("operations", operations)
            .argument("seed", self.seed)
            .figure("ns_per_operation", total_s * 1e9 / operations as f64)
            .figure("total_s", total_s))
    }
}

/// Says which call the kernel refused.
fn refused(call: &'static str) -> impl Fn(io::Error) -> WorkloadError {
    move |source| WorkloadError::Refused { call, source }
}

/// Starts a thread of a workload. What it waits for must end when its starter returns, with an error too: the scope
/// waits for it.
fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, WorkloadError> {
    thread::Builder::new().spawn_scoped(scope, work).map_err(refused("start a thread"))
}

/// What a thread of a workload came to.
fn joined<T>(ended: std::thread::Result<Result<T, WorkloadError>>) -> Result<T, WorkloadError> {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
