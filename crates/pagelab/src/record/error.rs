//! Why a program cannot be recorded, and what to do about it.

use std::io;
use std::path::PathBuf;

use trace::executable::{Architecture, MOST_SCRIPTS};

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The command is not there, or may not be executed.
    #[error("{0}")]
    Command(#[from] tracer::LaunchError),
    /// A file cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// There is no place for what pagelab and the recorder hand each other.
    #[error("{}: no temporary directory can be made: {error}; free some space, or set TMPDIR", path.display())]
    NoExchange {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Neither a program nor a script.
    #[error("{}: neither an ELF program nor a script with `#!`; name the program that runs it", .0.display())]
    NoProgram(PathBuf),
    /// A program for a machine that is not emulated.
    #[error("{}: {what}; only x86_64, aarch64 and riscv64 programs can be recorded", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// Scripts whose interpreters are scripts, without end.
    #[error("{}: its interpreter is a script, and so are the next {}; expected a program", .0.display(), MOST_SCRIPTS)]
    Scripts(PathBuf),
    /// Another instruction set than asked for.
    #[error("{}: a program for {found}; --arch asks for {expected}", path.display())]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        /// What it is for.
        found: Architecture,
        /// What was asked for.
        expected: Architecture,
    },
    /// No emulator of a whole machine.
    #[error(
        "{}: --system expects the emulator of a whole machine: qemu-system-x86_64, qemu-system-aarch64 or qemu-system-riscv64, with its arguments",
        .0.display()
    )]
    NoSystem(PathBuf),
    /// A machine that hardware executes: what asks for that.
    #[error(
        "{0}: hardware would execute the machine, and nothing could be recorded; leave it to the emulator: -accel tcg"
    )]
    Accelerated(String),
    /// QEMU does not tell where the machine's memory is.
    #[error("{}: its monitor: {error}; expected QEMU 7.2 or newer", path.display())]
    Monitor {
        /// QEMU's program.
        path: PathBuf,
        /// What happened.
        #[source]
        error: io::Error,
    },
    /// QEMU is missing.
    #[error("{program} is not installed, and {path} needs it; install it: apt-get install qemu-user", path = path.display())]
    NoEmulator {
        /// QEMU's program.
        program: String,
        /// What should run in it.
        path: PathBuf,
    },
    /// QEMU does not say what it is.
    #[error("{program} {option}: {problem}; expected QEMU 7.2 or newer", program = program.display())]
    StrangeEmulator {
        /// QEMU's program.
        program: PathBuf,
        /// What it was asked.
        option: &'static str,
        /// What happened.
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
        /// QEMU's program.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The plugin that came with the program could be anybody's.
    #[error(
        "{0} and its directory must belong to root or to the owner of this program, and must not be writable by everybody: its \
         code runs as you. Where you trust it, name it: --plugin {0}",
        path.display()
    )]
    ForeignPlugin {
        /// The plugin.
        path: PathBuf,
    },
    /// The plugin is missing.
    #[error(
        "the recorder's plugin is not there: {}. Install the package pagelab-recorder, or build it (cargo build --release -p \
         qemu-plugin), or name it with --plugin or {}",
        looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        super::PLUGIN_VARIABLE
    )]
    NoPlugin {
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// The output cannot be written.
    #[error("-o: {0}")]
    Output(#[from] results::output::Error),
    /// A directory that is not there.
    #[error("{}: no directory; --sysroot expects the root of a system for {architecture}", path.display())]
    NoSysroot {
        /// Which.
        path: PathBuf,
        /// For which programs.
        architecture: Architecture,
    },
    /// What was recorded could not be written.
    #[error(
        "{}: the recording is not whole: what is missing, and why, stands above. Free some space, and record again (the command ended with {ended})",
        output.display()
    )]
    Lost {
        /// The first trace.
        output: PathBuf,
        /// How the command ended.
        ended: String,
    },
    /// The emulator ended before anything was executed, or could not be recorded.
    #[error("{} ended with {ended} before anything was recorded; its message above says why{hint}", emulator.display())]
    NothingRecorded {
        /// QEMU's program.
        emulator: PathBuf,
        /// How.
        ended: String,
        /// What else may be the matter; empty, or it begins with a punctuation mark.
        hint: String,
    },
}
