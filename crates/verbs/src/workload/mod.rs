//! The built-in workloads: small programs whose cost is known to depend on page sizes.
//!
//! Each workload is an ordinary command: it has its own memory, a checksum that depends only on its arguments, and a result
//! that it verifies itself. No workload requests page sizes, except `jit-arena`. As translators do, it applies MADV_HUGEPAGE
//! to its arena, unless its arguments disable that.

mod arguments;
mod chase;
mod copies;
mod fork_cow;
mod fragments;
mod gups;
mod held;
mod jit_arena;
mod kernel;
mod kvm_dirty_log;
mod latency;
mod mmap_churn;
mod page_touch;
mod report;
mod scratch;
mod spec_cpu;
mod stream;
mod tcg_boot;

pub use report::Report;

use census::CensusError;
use clap::CommandFactory;
use workloads::jit::JitError;
use workloads::kernel::KernelError;
use workloads::kvm::KvmError;
use workloads::memory::{ForkError, FragmentsError, MapError};

/// `pagelab workload NAME [ARGS]`.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArguments {
    #[command(subcommand)]
    workload: Workload,
    /// Print one JSON document instead of one line
    #[arg(long, global = true)]
    json: bool,
    /// Print only what is the same in every run: name, arguments and checksum
    #[arg(long, global = true)]
    answer_only: bool,
}

/// The workloads.
#[derive(Clone, Debug, clap::Subcommand)]
enum Workload {
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
    /// Write files of several sizes: how much page cache each of them takes
    PageCache(held::PageCache),
    /// Touch memory of several sizes: how much page tables each of them takes
    TableGrowth(held::TableGrowth),
    /// Fragment free memory, as on a machine that has been up for weeks, and keep it so until standard input ends
    /// (root)
    Fragments(fragments::Arguments),
    #[command(flatten)]
    Kernel(kernel::Kernel),
    /// Log the writes of a virtual machine: the cost of each phase, and the leaves that map it (needs /dev/kvm)
    KvmDirtyLog(kvm_dirty_log::Arguments),
    /// Generate machine code into regions with guard pages, and run it: what translators and JITs do
    JitArena(jit_arena::Arguments),
    /// Boot and power off an arm64 Linux in QEMU (TCG): how guard pages in the code buffer cost huge pages
    TcgBoot(tcg_boot::Arguments),
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
    /// A virtual machine could not be created or behaved incorrectly.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The host's settings cannot be read.
    #[error("{0}")]
    Host(String),
    /// Memory for generated code could not be mapped.
    #[error(transparent)]
    Jit(#[from] JitError),
    /// The workload's own mappings could not be read.
    #[error("the census of the workload's own memory: {0}")]
    Census(#[source] CensusError),
    /// The guest did not boot, or a file that it needs is missing.
    #[error(transparent)]
    Boot(#[from] tcg_boot::BootError),
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
            WorkloadError::Kvm(error) if error.is_unsupported() => 3,
            WorkloadError::Boot(error) => error.exit_code(),
            WorkloadError::Spec(error) if error.is_input_error() => 2,
            WorkloadError::Interrupted(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            _ => 1,
        }
    }
}

/// Runs a workload and verifies its result. The caller prints the report.
pub fn run(arguments: WorkloadArguments) -> Result<Report, WorkloadError> {
    let report = match &arguments.workload {
        Workload::Chase(chase) => chase::run(chase),
        Workload::Gups(gups) => gups::run(gups),
        Workload::Stream(stream) => stream::run(stream),
        Workload::PageTouch(page_touch) => page_touch::run(page_touch),
        Workload::MmapChurn(mmap_churn) => mmap_churn::run(mmap_churn),
        Workload::ForkCow(fork_cow) => fork_cow::run(fork_cow),
        Workload::PageCache(page_cache) => page_cache.run(),
        Workload::TableGrowth(table_growth) => table_growth.run(),
        Workload::Fragments(fragments) => fragments::run(fragments),
        Workload::Kernel(kernel) => kernel.run(),
        Workload::KvmDirtyLog(kvm_dirty_log) => kvm_dirty_log::run(kvm_dirty_log),
        Workload::JitArena(jit_arena) => jit_arena::run(jit_arena),
        Workload::TcgBoot(tcg_boot) => tcg_boot::run(tcg_boot),
        Workload::Copies(copies) => copies::run(copies),
        Workload::SpecCpu(spec_cpu) => spec_cpu::run(spec_cpu),
    }?;
    Ok(report.with_format(arguments.json, arguments.answer_only))
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

fn check(what: impl Into<String>, expected: u64, found: u64) -> Result<(), WorkloadError> {
    if expected == found {
        return Ok(());
    }
    Err(WorkloadError::WrongAnswer { what: what.into(), expected, found })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const NAMES: &str = "chase gups stream page-touch mmap-churn fork-cow page-cache table-growth fragments sched-messaging pipe-switch syscalls page-faults brk-growth \
                         fork-exec unix-socket tcp-loopback file-churn directory-read mapped-read memfd-pread kvm-dirty-log jit-arena tcg-boot copies spec-cpu";

    /// Arguments with which every workload takes only milliseconds.
    const SMOKE: [&str; 19] = [
        "chase --bytes 1M --steps 10000",
        "gups --bytes 1M --updates 10000",
        "stream --bytes 192K --rounds 3",
        "page-touch --bytes 1M --density 0.5 --read-first",
        "mmap-churn --bytes 256K --rounds 10",
        "page-cache --sizes 1,5K",
        "table-growth --sizes 4K,64K",
        "sched-messaging --seconds 0.002",
        "pipe-switch --seconds 0.002",
        "syscalls --seconds 0.002",
        "page-faults --seconds 0.002",
        "unix-socket --seconds 0.002",
        "tcp-loopback --seconds 0.002",
        "file-churn --seconds 0.002",
        "directory-read --seconds 0.003",
        "mapped-read --seconds 0.002 --bytes 64K",
        "memfd-pread --seconds 0.002 --bytes 1M",
        "jit-arena --bytes 300K --stride 64K --hotness 2",
        "jit-arena --bytes 300K --stride 64K --hot-share 0.1 --dual --advice none --rate 100M",
    ];

    fn run_line(line: &str) -> Result<Report, WorkloadError> {
        let words = std::iter::once("workload").chain(line.split_whitespace());
        run(CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).arguments)
    }

    fn answer(line: &str) -> String {
        run_line(&format!("{line} --answer-only")).unwrap_or_else(|error| panic!("{line}: {error}")).to_string()
    }

    #[test]
    fn answers_depend_on_the_arguments_alone() {
        for line in SMOKE {
            assert_eq!(answer(line), answer(line));
            if !line.starts_with("stream") {
                assert_ne!(answer(line), answer(&format!("{line} --seed 7")), "{line}");
            }
        }
    }

    #[test]
    fn a_report_is_one_line_of_name_value_pairs_or_one_document() {
        for line in SMOKE {
            let text = run_line(line).unwrap().to_string();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.starts_with(&format!("name={} ", line.split(' ').next().unwrap())), "{text}");
            assert!(text.split(' ').all(|pair| pair.split_once('=').is_some_and(|(_, value)| !value.is_empty())));
            let document = run_line(&format!("{line} --json")).unwrap().to_string();
            let document: serde_json::Value = serde_json::from_str(&document).unwrap();
            assert_eq!(document["schema"], "pagelab.workload/1");
            assert!(document["checksum"].as_str().unwrap().starts_with("0x"));
            assert!(document["figures"].as_object().unwrap().values().all(serde_json::Value::is_number));
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_option_and_the_value() {
        for (line, option) in [
            ("chase --bytes 0", "--bytes"),
            ("chase --bytes 1000", "--bytes"),
            ("chase --lines-per-page 0", "--lines-per-page"),
            ("chase --lines-per-page 100000", "--lines-per-page"),
            ("chase --line-bytes 48", "--line-bytes"),
            ("chase --steps 0", "--steps"),
            ("gups --bytes 12", "--bytes"),
            ("gups --updates 0", "--updates"),
            ("stream --bytes 1000", "--bytes"),
            ("stream --rounds 1", "--rounds"),
            ("page-touch --bytes 1", "--bytes"),
            ("page-touch --density 0", "--density"),
            ("page-touch --density 1.5", "--density"),
            ("page-touch --density nan", "--density"),
            ("page-touch --order strided --stride 100", "--stride"),
            ("mmap-churn --rounds 0", "--rounds"),
            ("fork-cow --share -1", "--share"),
            ("fork-cow --bytes 1", "--bytes"),
            ("jit-arena --bytes 0", "--bytes"),
            ("jit-arena --piece-bytes 10", "--piece-bytes"),
            ("jit-arena --piece-bytes 2M", "--piece-bytes"),
            ("jit-arena --stride 1000", "--stride"),
            ("jit-arena --stride 64K --piece-bytes 64K", "--stride"),
            ("jit-arena --hot-share 0", "--hot-share"),
            ("jit-arena --rate 0", "--rate"),
            ("jit-arena --bytes 4096T", "--bytes"),
            ("tcg-boot --smp 4 --max-cpus 2", "--max-cpus"),
            ("tcg-boot --memory 1M", "--memory"),
            ("tcg-boot --tb-size 1 --max-cpus 256", "--tb-size"),
            ("gups --bytes 4096T", "--bytes"),
            ("chase --bytes 4096T --steps 1", "--bytes"),
            ("syscalls --seconds 0", "--seconds"),
            ("pipe-switch --seconds nan", "--seconds"),
            ("page-faults --seconds 1e30", "--seconds"),
            ("memfd-pread --bytes 100", "--bytes"),
            ("page-cache --sizes 4K,0", "--sizes"),
            ("page-cache --sizes 4096T", "--sizes"),
            ("table-growth --sizes 0", "--sizes"),
            ("mapped-read --bytes 100", "--bytes"),
            ("mapped-read --bytes 4096T", "--bytes"),
            ("mapped-read --bytes 64K --directory /proc", "--directory"),
            ("fork-exec --bytes 1", "--bytes"),
            ("file-churn --directory /proc", "--directory"),
        ] {
            let error = run_line(&line.replace("--share -1", "--share=-1")).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
            assert!(error.to_string().starts_with(option), "{line}: {error}");
        }
    }

    #[test]
    fn refuses_invalid_sizes_while_parsing() {
        let error = CommandLine::try_parse_from(["workload", "gups", "--bytes", "1X"]).err().unwrap().to_string();
        assert!(error.contains("expected a size such as 64K"), "{error}");
    }

    #[test]
    fn a_wrong_answer_has_its_own_error() {
        let error = check("the end", 1, 2).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("expected 0x0000000000000001, found 0x0000000000000002"), "{error}");
    }

    #[test]
    fn the_catalogue_names_every_workload_once() {
        let names: Vec<String> = catalogue().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.join(" "), NAMES);
        assert!(catalogue().iter().all(|(_, about)| about.len() > 20));
    }
}
