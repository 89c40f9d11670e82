//! The built-in workloads: small programs whose cost is known to depend on page sizes.
//!
//! Each workload is an ordinary command: it has its own memory, a checksum that depends only on its arguments, and a result
//! that it verifies itself. No workload requests page sizes, except `collapse`, which is about MADV_COLLAPSE, and `jit-arena`
//! (labs/code-buffers), which advises its arena as translators do.

pub mod arguments;
mod chase;
mod collapse;
mod copies;
mod fork_cow;
mod fragments;
mod gups;
mod held;
mod kernel;
mod latency;
mod mmap_churn;
mod mprotect;
mod page_touch;
mod report;
mod scratch;
mod spec_cpu;
mod stream;
mod swap_in;
#[cfg(test)]
mod tests;

pub use report::Report;

use census::CensusError;
use clap::CommandFactory;

use crate::lab_command::WithLabs;
use workloads::kernel::KernelError;
use workloads::memory::{ForkError, FragmentsError, MapError};

/// `pagelab workload NAME [ARGS]`.
#[derive(Debug, clap::Args)]
pub struct WorkloadArguments {
    #[command(subcommand)]
    workload: WithLabs<Workload>,
    /// Print one JSON document instead of one line
    #[arg(long, global = true)]
    json: bool,
    /// Print only what is the same in every run: name, arguments and checksum
    #[arg(long, global = true)]
    answer_only: bool,
}

/// The workloads.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Workload {
    /// Follow pointers through memory in one random cycle: the latency of a TLB miss
    Chase(chase::Arguments),
    /// Update random words (read, change, write): throughput under TLB misses
    Gups(gups::Arguments),
    /// Copy, scale, add and triad over three arrays: bandwidth
    Stream(stream::Arguments),
    /// Touch fresh pages one by one: the latency of the first touch
    PageTouch(page_touch::Arguments),
    /// Map, touch and unmap again and again: the latency of each
    MmapChurn(mmap_churn::Arguments),
    /// Fork after touching and let the child write: the cost of fork and of copy-on-write
    ForkCow(fork_cow::Arguments),
    /// Make strips of touched memory read-only and writable again, and write to all of it: the cost of splitting VMAs and large
    /// pages
    Mprotect(mprotect::Arguments),
    /// Touch base pages and collapse them into large ones (MADV_COLLAPSE): the cost of a collapse
    Collapse(collapse::Arguments),
    /// Swap memory out and read it again: the cost of each fault, by order and locality (needs swap)
    SwapIn(swap_in::Arguments),
    /// Write files of several sizes: how much page cache each of them takes
    PageCache(held::PageCache),
    /// Touch memory of several sizes: how much page tables each of them takes
    TableGrowth(held::TableGrowth),
    /// Fragment free memory, as on a machine that has been up for weeks, and keep it so until standard input ends
    /// (root)
    Fragments(fragments::Arguments),
    #[command(flatten)]
    Kernel(kernel::Kernel),
    /// Run a command once on every processor at the same time
    Copies(copies::Arguments),
    /// Run a benchmark of SPEC CPU, or read its raw result file, for those who own it
    SpecCpu(spec_cpu::Arguments),
}

/// Why a workload has no correct result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// An argument is invalid.
    #[error("--{option}: expected {expected}, found {found}")]
    Argument {
        /// The name of the option.
        option: &'static str,
        /// The accepted values.
        expected: String,
        /// The given value.
        found: String,
    },
    /// The workload needs more memory than the machine can provide.
    #[error(
        "--{option}: the workload needs {needed} of memory and this machine can provide {obtainable}; \
         use a smaller --{option}, or free memory first"
    )]
    Room {
        /// The option that decides the size.
        option: &'static str,
        /// The memory that the workload needs, as text.
        needed: String,
        /// The available memory, as text.
        obtainable: String,
    },
    /// Memory could not be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Memory could not be unmapped.
    #[error("munmap of the workload's own mapping failed: {0}; this is a bug in the kernel, the tracer or pagelab")]
    Unmap(#[source] std::io::Error),
    /// The kernel refused a call that is the subject of the workload.
    #[error("cannot {call}: {source}; {remedy}")]
    Refused {
        /// The call, and what it was to do.
        call: &'static str,
        source: std::io::Error,
        /// How to remedy it.
        remedy: &'static str,
    },
    /// Nothing was swapped out.
    #[error("no memory was swapped out, so nothing can be read from swap: {why}")]
    NoSwap {
        /// Why not, and what to do.
        why: &'static str,
    },
    /// Pages could not be moved to other addresses.
    #[error(
        "--permute-frames: a page cannot be moved: {0}; use fewer --bytes, or a higher vm.max_map_count: each page is a VMA"
    )]
    Permute(#[source] std::io::Error),
    /// The fork or its child failed.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// Free memory could not be fragmented.
    #[error(transparent)]
    Fragments(#[from] FragmentsError),
    /// A program that a workload executes failed.
    #[error("{} ended with status {status}; expected 0: --program names another one", program.display())]
    Program {
        /// The path of the program.
        program: std::path::PathBuf,
        /// The exit status of the program.
        status: i32,
    },
    /// A workload that exercises the kernel failed.
    #[error(transparent)]
    Kernel(KernelError),
    /// The directory for files cannot be created.
    #[error("--directory: cannot create a directory in {}: {source}; name a writable one", directory.display())]
    Scratch {
        /// The parent directory.
        directory: std::path::PathBuf,
        source: std::io::Error,
    },
    /// SIGINT, SIGTERM or SIGHUP arrived while there were files to remove.
    #[error("stopped by signal {0}; the files are removed")]
    Interrupted(i32),
    /// The host's settings cannot be read.
    #[error("{0}")]
    Host(String),
    /// The workload's own mappings could not be read.
    #[error("the census of the workload's own memory: {0}")]
    Census(#[source] CensusError),
    /// A workload of a lab failed.
    #[error("{error}")]
    OfLab {
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
        /// The exit code: 2 for invalid arguments, 3 if this host lacks something, 1 for later errors.
        exit_code: u8,
    },
    /// Copies of a command failed.
    #[error(transparent)]
    Copies(#[from] copies::CopiesError),
    /// SPEC CPU has no result.
    #[error(transparent)]
    Spec(#[from] spec_cpu::SpecError),
    /// The memory does not hold what was written to it.
    #[error(
        "wrong answer: {what}: expected {expected:#018x}, found {found:#018x}; \
         memory was lost or mixed up by the hardware, the kernel or the policy's mechanism"
    )]
    WrongAnswer {
        /// The name of the compared value.
        what: String,
        /// The expected value.
        expected: u64,
        /// The value found.
        found: u64,
    },
}

impl From<KernelError> for WorkloadError {
    fn from(error: KernelError) -> WorkloadError {
        match error {
            KernelError::Stopped(signal) => WorkloadError::Interrupted(signal),
            error => WorkloadError::Kernel(error),
        }
    }
}

impl WorkloadError {
    /// The exit code: 2 for invalid arguments, 3 if this host lacks something, 1 for later errors.
    pub fn exit_code(&self) -> u8 {
        match self {
            WorkloadError::Fragments(FragmentsError::Block { .. }) => 2,
            WorkloadError::Fragments(FragmentsError::Frames) => 3,
            WorkloadError::Argument { .. } | WorkloadError::Room { .. } | WorkloadError::Scratch { .. } => 2,
            WorkloadError::NoSwap { .. } => 3,
            WorkloadError::OfLab { exit_code, .. } => *exit_code,
            WorkloadError::Spec(error) if error.is_input_error() => 2,
            WorkloadError::Interrupted(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            _ => 1,
        }
    }
}

/// Runs a workload and verifies its result. The caller prints the report.
pub fn run(arguments: WorkloadArguments) -> Result<Report, WorkloadError> {
    let report = match &arguments.workload {
        WithLabs::Own(workload) => own(workload),
        WithLabs::OfLab(command, arguments) => command.run(arguments),
    }?;
    Ok(report.with_format(arguments.json, arguments.answer_only))
}

fn own(workload: &Workload) -> Result<Report, WorkloadError> {
    match workload {
        Workload::Chase(chase) => chase::run(chase),
        Workload::Gups(gups) => gups::run(gups),
        Workload::Stream(stream) => stream::run(stream),
        Workload::PageTouch(page_touch) => page_touch::run(page_touch),
        Workload::MmapChurn(mmap_churn) => mmap_churn::run(mmap_churn),
        Workload::ForkCow(fork_cow) => fork_cow::run(fork_cow),
        Workload::Mprotect(mprotect) => mprotect::run(mprotect),
        Workload::Collapse(collapse) => collapse::run(collapse),
        Workload::SwapIn(swap_in) => swap_in::run(swap_in),
        Workload::PageCache(page_cache) => page_cache.run(),
        Workload::TableGrowth(table_growth) => table_growth.run(),
        Workload::Fragments(fragments) => fragments::run(fragments),
        Workload::Kernel(kernel) => kernel.run(),
        Workload::Copies(copies) => copies::run(copies),
        Workload::SpecCpu(spec_cpu) => spec_cpu::run(spec_cpu),
    }
}

/// The name and the description of every workload, in the order of the manual.
pub fn catalogue() -> Vec<(String, String)> {
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    CommandLine::command().get_subcommands().map(|command| (command.get_name().to_string(), about(command))).collect()
}

/// A command line that consists only of the arguments of `workload`.
#[derive(clap::Parser)]
#[command(name = "pagelab workload")]
struct CommandLine {
    #[command(flatten)]
    arguments: WorkloadArguments,
}

/// Fails if a value is not the expected one: a wrong answer.
pub fn check(what: impl Into<String>, expected: u64, found: u64) -> Result<(), WorkloadError> {
    if expected == found {
        return Ok(());
    }
    Err(WorkloadError::WrongAnswer { what: what.into(), expected, found })
}
