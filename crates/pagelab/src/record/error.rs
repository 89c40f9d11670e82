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
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The directory for the files exchanged with the recorder cannot be created.
    #[error("{}: no temporary directory can be made: {error}; free some space, or set TMPDIR", path.display())]
    NoExchange {
        /// The parent directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file is neither an ELF program nor a script.
    #[error("{}: neither an ELF program nor a script with `#!`; name the program that runs it", .0.display())]
    NoProgram(PathBuf),
    /// The program is for an architecture that is not supported.
    #[error("{}: {what}; only x86_64, aarch64 and riscv64 programs can be recorded", path.display())]
    Foreign {
        /// The program.
        path: PathBuf,
        /// The description of its format.
        what: String,
    },
    /// The chain of script interpreters is too long.
    #[error("{}: its interpreter is a script, and so are the next {}; expected a program", .0.display(), MAX_SCRIPTS)]
    Scripts(PathBuf),
    /// The program has another instruction set than --arch requests.
    #[error("{}: a program for {found}; --arch asks for {expected}", path.display())]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        /// The program's architecture.
        found: Architecture,
        /// The requested architecture.
        expected: Architecture,
    },
    /// The command is not a system emulator.
    #[error(
        "{}: --system expects the emulator of a whole machine: qemu-system-x86_64, qemu-system-aarch64 or qemu-system-riscv64, with its arguments",
        .0.display()
    )]
    NoSystem(PathBuf),
    /// An accelerator would execute the machine in hardware. The argument is the option that asks for it.
    #[error(
        "{0}: hardware would execute the machine, and nothing could be recorded; leave it to the emulator: -accel tcg"
    )]
    Accelerated(String),
    /// QEMU's monitor does not report the machine's memory layout.
    #[error("{}: its monitor: {error}; expected QEMU 7.2 or newer", path.display())]
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
    /// QEMU's answer to an option is not understood.
    #[error("{program} {option}: {problem}; expected QEMU 7.2 or newer", program = program.display())]
    StrangeEmulator {
        /// The path of QEMU's program.
        program: PathBuf,
        option: &'static str,
        /// The error, or the unexpected output.
        problem: String,
    },
    /// QEMU was built without plugins.
    #[error(
        "{}, version {version}, was built without plugins, and the recorder is one (Debian links qemu-user statically from \
         version 13 on, which leaves them out); put one that was built with --enable-plugins, and not with --static, \
         first in PATH",
        path.display()
    )]
    NoPlugins {
        /// The path of QEMU's program.
        path: PathBuf,
        /// QEMU's version.
        version: String,
    },
    /// The plugin next to the program could have been replaced by another user.
    #[error(
        "{0} and its directory must belong to root or to the owner of this program, and must not be writable by everybody: its \
         code runs as you. Where you trust it, name it: --plugin {0}",
        path.display()
    )]
    ForeignPlugin {
        /// The path of the plugin.
        path: PathBuf,
    },
    /// The plugin was not found.
    #[error(
        "the recorder's plugin is not there: {}. Install the package pagelab-recorder, or build it (cargo build --release -p \
         qemu-plugin), or name it with --plugin or {}",
        looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        super::PLUGIN_VARIABLE
    )]
    NoPlugin {
        /// The searched paths.
        looked: Vec<PathBuf>,
    },
    #[error("-o: {0}")]
    Output(#[from] results::output::Error),
    #[error("{}: no directory; --sysroot expects the root of a system for {architecture}", path.display())]
    NoSysroot {
        /// The path given to --sysroot.
        path: PathBuf,
        /// The architecture of the recorded program.
        architecture: Architecture,
    },
    /// A part of the recording could not be written.
    #[error(
        "{}: the recording is not whole: see above for what is missing, and why. Free some space, and record again (the command ended with {ended})",
        output.display()
    )]
    Lost {
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
