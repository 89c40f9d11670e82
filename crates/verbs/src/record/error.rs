//! Why a program cannot be recorded, and what to do about it.

use std::io;
use std::path::PathBuf;

use trace::executable::{Architecture, MAX_SCRIPTS};

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The command does not exist, or may not be executed.
    #[error("{0}")]
    Command(#[from] tracer::LaunchError),
    #[error("{}: cannot be read: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The directory for the files exchanged with the recorder cannot be created.
    #[error("{}: no temporary directory can be created: {error}; free some space, or set TMPDIR", path.display())]
    ExchangeDirectory {
        /// The parent directory.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The file is neither an ELF program nor a script.
    #[error("{}: neither an ELF program nor a script with `#!`; name the program that runs it", .0.display())]
    NotAProgram(PathBuf),
    /// The program is for an architecture that is not supported.
    #[error("{}: {what}; only x86_64, aarch64 and riscv64 programs can be recorded", path.display())]
    Foreign {
        /// The program.
        path: PathBuf,
        /// The description of its format.
        what: String,
    },
    /// The chain of script interpreters is too long.
    #[error("{}: expected a program at the end of the chain of `#!` interpreters, found more than {} scripts", .0.display(), MAX_SCRIPTS)]
    NestedScripts(PathBuf),
    /// The program has another instruction set than --arch requests.
    #[error("{}: expected a program for {expected} (--arch), found one for {found}", path.display())]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        found: Architecture,
        expected: Architecture,
    },
    /// The command is not a system emulator.
    #[error(
        "{}: --system expects the emulator of a whole machine: qemu-system-x86_64, qemu-system-aarch64 or qemu-system-riscv64, with its arguments",
        .0.display()
    )]
    NotASystemEmulator(PathBuf),
    /// An accelerator would run the machine in hardware. The string is the option that selects it.
    #[error("{0}: the machine would run in hardware, where nothing can be recorded; use -accel tcg")]
    Accelerated(String),
    /// QEMU's monitor does not report the machine's memory layout.
    #[error("{}: QEMU's monitor: {error}; expected QEMU 7.2 or newer", path.display())]
    Monitor {
        /// The path of QEMU's program.
        path: PathBuf,
        /// The error of the monitor.
        #[source]
        error: io::Error,
    },
    #[error("{program} is not installed, and {path} needs it; install it: apt-get install qemu-user", path = path.display())]
    NoEmulator {
        /// The name of QEMU's program.
        program: String,
        /// The program to be recorded.
        path: PathBuf,
    },
    /// QEMU's output for an option cannot be parsed.
    #[error("{program} {option}: {problem}; expected QEMU 7.2 or newer", program = program.display())]
    UnexpectedOutput {
        /// The path of QEMU's program.
        program: PathBuf,
        option: &'static str,
        /// The error, or the unexpected output.
        problem: String,
    },
    /// QEMU was built without plugins.
    #[error(
        "{}, version {version}, was built without plugins, but the recorder is one (from version 13 on, Debian links qemu-user \
         statically, without plugins); put a QEMU that was built with --enable-plugins and without --static first in PATH",
        path.display()
    )]
    NoPlugins {
        /// The path of QEMU's program.
        path: PathBuf,
        version: String,
    },
    /// The plugin next to the program could have been replaced by another user.
    #[error(
        "{0} and its directory must belong to root or to the owner of this program, and must not be writable by everybody: its \
         code runs as you. If you trust it, name it: --plugin {0}",
        path.display()
    )]
    ForeignPlugin {
        /// The path of the plugin.
        path: PathBuf,
    },
    /// The plugin was not found.
    #[error(
        "the recorder's plugin was not found: {}. Install the package pagelab-recorder, or build it in a checkout \
         (cargo build --release), or name it with --plugin or {}",
        searched.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        super::PLUGIN_VARIABLE
    )]
    NoPlugin {
        /// The searched paths.
        searched: Vec<PathBuf>,
    },
    #[error("-o: {0}")]
    Output(#[from] results::output::Error),
    #[error("{}: not a directory; --sysroot expects the root of a system for {architecture}", path.display())]
    NoSysroot {
        /// The path given to --sysroot.
        path: PathBuf,
        /// The architecture of the recorded program.
        architecture: Architecture,
    },
    /// A part of the recording could not be written.
    #[error(
        "{}: the recording is incomplete: the messages above say what is missing and why. Free some space, and record again (the command ended with {ended})",
        output.display()
    )]
    Incomplete {
        /// The path of the first trace.
        output: PathBuf,
        /// The exit status of the command.
        ended: String,
    },
    /// The emulator ended before anything was executed, or could not be recorded.
    #[error("{} ended with {ended} before anything was recorded; its message above says why{hint}", emulator.display())]
    NothingRecorded {
        /// The path of QEMU's program.
        emulator: PathBuf,
        /// QEMU's exit status.
        ended: String,
        /// A possible further reason; empty, or text that begins with a punctuation mark.
        hint: String,
    },
}
