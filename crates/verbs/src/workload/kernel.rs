//! The workloads that exercise the kernel ([`workloads::kernel`]): their arguments and reports.

use std::path::PathBuf;

use clap::Args;
use tracer::signals;
use workloads::kernel::{
    Completed, KernelError, Load, brk_growth, directory_read, file_churn, fork_exec, mapped_read, memfd_pread,
    messaging, page_faults, pipe_switch, sockets, syscalls,
};
use workloads::memory::ForkError;
use workloads::random::mix;

use super::report::Report;
use super::scratch::Scratch;
use super::{WorkloadError, arguments, check};

/// Arguments of every workload in this module.
#[derive(Clone, Debug, Args)]
pub struct Work {
    /// The amount of work, in seconds that a 2.5 GHz core takes for it without a hypervisor. The work is the same on every
    /// machine
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seed of the data and of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Arguments of the workloads that make files.
#[derive(Clone, Debug, Args)]
pub struct Files {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    scratch: Scratch,
}

/// Arguments of `fork-exec`.
#[derive(Clone, Debug, Args)]
pub struct ForkExec {
    #[command(flatten)]
    work: Work,
    /// Memory that the parent touches before it forks, in whole base pages
    #[arg(long, default_value = "16M", value_parser = arguments::size)]
    bytes: u64,
    /// The program that each child executes; it must end with status 0
    #[arg(long, default_value = "true")]
    program: PathBuf,
}

/// Arguments of `memfd-pread`.
#[derive(Clone, Debug, Args)]
pub struct MemfdPread {
    #[command(flatten)]
    work: Work,
    /// Size of the file, in blocks of 1M
    #[arg(long, default_value = "1G", value_parser = arguments::size)]
    bytes: u64,
}

/// Arguments of `mapped-read`.
#[derive(Clone, Debug, Args)]
pub struct MappedRead {
    #[command(flatten)]
    work: Work,
    /// Size of each of the 16 files, in whole base pages
    #[arg(long, default_value = "1M", value_parser = arguments::size)]
    bytes: u64,
    #[command(flatten)]
    scratch: Scratch,
}

/// The workloads.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Kernel {
    /// Twenty threads send to twenty others over sockets: the scheduler and small copies
    SchedMessaging(Work),
    /// Two threads hand a byte back and forth through pipes: context switches
    PipeSwitch(Work),
    /// Call getppid: bare system calls, the control
    Syscalls(Work),
    /// Map 64M, write to each base page, unmap: page faults
    PageFaults(Work),
    /// Grow the heap by the program break, write to it and shrink it
    BrkGrowth(Work),
    /// Fork, execute a program that does nothing, wait for it
    ForkExec(ForkExec),
    /// Send blocks through a pair of Unix sockets
    UnixSocket(Work),
    /// Send blocks through a TCP connection of this machine with itself
    TcpLoopback(Work),
    /// Create, stat and unlink files
    FileChurn(Files),
    /// Read a directory of 4,096 files
    DirectoryRead(Files),
    /// Open, map, read and close files, one after the other: faults of mapped files
    MappedRead(MappedRead),
    /// Read 64 bytes at random places of a large file in memory: the direct map's TLB misses
    MemfdPread(MemfdPread),
}

impl Kernel {
    pub fn run(&self) -> Result<Report, WorkloadError> {
        match self {
            Kernel::SchedMessaging(work) => work.measure("sched-messaging", messaging::PER_SECOND, messaging::run),
            Kernel::PipeSwitch(work) => work.measure("pipe-switch", pipe_switch::PER_SECOND, pipe_switch::run),
            Kernel::Syscalls(work) => work.measure("syscalls", syscalls::PER_SECOND, syscalls::run),
            Kernel::PageFaults(work) => work.measure("page-faults", page_faults::PER_SECOND, page_faults::run),
            Kernel::BrkGrowth(work) => work.measure("brk-growth", brk_growth::PER_SECOND, brk_growth::run),
            Kernel::ForkExec(arguments) => arguments.run(),
            Kernel::UnixSocket(work) => work.measure("unix-socket", sockets::UNIX_PER_SECOND, sockets::unix),
            Kernel::TcpLoopback(work) => work.measure("tcp-loopback", sockets::TCP_PER_SECOND, sockets::tcp),
            Kernel::FileChurn(Files { work, scratch }) => {
                let load = work.load(file_churn::PER_SECOND)?;
                let completed = scratch.with(|directory| file_churn::run(load, directory, &signals::arrived))?;
                Ok(work.report("file-churn", &completed)?.argument("directory", scratch.parent_text()))
            }
            Kernel::DirectoryRead(Files { work, scratch }) => {
                let load = work.load(directory_read::PER_SECOND)?;
                let completed = scratch.with(|directory| directory_read::run(load, directory, &signals::arrived))?;
                Ok(work.report("directory-read", &completed)?.argument("directory", scratch.parent_text()))
            }
            Kernel::MappedRead(arguments) => arguments.run(),
            Kernel::MemfdPread(arguments) => arguments.run(),
        }
    }
}

impl ForkExec {
    fn run(&self) -> Result<Report, WorkloadError> {
        let load = self.work.load(fork_exec::PER_SECOND)?;
        let bytes = arguments::whole_pages("bytes", self.bytes)?;
        arguments::room("bytes", u128::from(self.bytes))?;
        let completed = fork_exec::run(load, bytes, &self.program).map_err(|error| self.workload_error(error))?;
        let report = self.work.report("fork-exec", &completed)?.argument("bytes", self.bytes);
        Ok(report.argument("program", self.program.display().to_string()))
    }

    /// Converts an error. If a child failed, the error has the exit status of the program that it executed.
    fn workload_error(&self, error: KernelError) -> WorkloadError {
        match error {
            KernelError::Fork(ForkError::Exited { status }) => {
                WorkloadError::Program { program: self.program.clone(), status }
            }
            error => error.into(),
        }
    }
}

impl MappedRead {
    fn run(&self) -> Result<Report, WorkloadError> {
        let bytes = arguments::whole_pages("bytes", self.bytes)?;
        let load = self.work.load(mapped_read::per_second(bytes))?;
        arguments::room("bytes", u128::from(mapped_read::FILES) * u128::from(self.bytes))?;
        let completed = self.scratch.with(|directory| mapped_read::run(load, bytes, directory, &signals::arrived))?;
        let report = self.work.report("mapped-read", &completed)?.argument("bytes", self.bytes);
        Ok(report.argument("directory", self.scratch.parent_text()))
    }
}

impl MemfdPread {
    fn run(&self) -> Result<Report, WorkloadError> {
        let load = self.work.load(memfd_pread::PER_SECOND)?;
        let bytes = arguments::multiple("bytes", self.bytes, memfd_pread::BLOCK_BYTES as u64, "a block")?;
        arguments::room("bytes", bytes as u128)?;
        let completed = memfd_pread::run(load, bytes)?;
        Ok(self.work.report("memfd-pread", &completed)?.argument("bytes", self.bytes))
    }
}

impl Work {
    /// The number of operations that take the requested seconds, at `per_second` operations per second.
    fn load(&self, per_second: u64) -> Result<Load, WorkloadError> {
        let operations = self.seconds * per_second as f64;
        if operations.is_finite() && (1.0..=1e15).contains(&operations) {
            return Ok(Load { operations: operations as u64, seed: self.seed });
        }
        let least = 1.0 / per_second as f64;
        let expected = format!("from {least:.6} to {:.0} seconds of work", 1e15 / per_second as f64);
        Err(WorkloadError::Argument { option: "seconds", expected, found: self.seconds.to_string() })
    }

    /// Runs a workload that needs only the common arguments.
    fn measure(
        &self,
        name: &'static str,
        per_second: u64,
        run: fn(Load) -> Result<Completed, KernelError>,
    ) -> Result<Report, WorkloadError> {
        self.report(name, &run(self.load(per_second)?)?)
    }

    /// Checks the checksum of the work, and reports it.
    fn report(&self, name: &'static str, completed: &Completed) -> Result<Report, WorkloadError> {
        check("the sum of all results", completed.expected, completed.sum)?;
        Ok(Report::new(name, mix(completed.sum ^ self.seed))
            .argument("seconds", self.seconds)
            .argument("operations", completed.operations)
            .argument("seed", self.seed)
            .figure("ns_per_operation", completed.total_s * 1e9 / completed.operations as f64)
            .figure("total_s", completed.total_s))
    }
}
