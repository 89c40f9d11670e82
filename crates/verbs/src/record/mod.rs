//! `pagelab record`: runs a command under QEMU user emulation, or a whole machine, with a plugin that writes the memory
//! accesses to a trace. Standard input, output and the exit status are those of the command.

mod ends;
mod error;
mod exchange;
mod leftovers;
mod native;
mod output;
mod program;
mod qmp;
mod system;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use census::inspect::{jemalloc, load_segments};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use policy::size::{PageSize, format_bytes};
use study::stats::median;
use trace::executable::Architecture;
use trace::{Columns, Header, Native, NativeRun, Notes, Window};
use tracer::signals::{self, Forward};
use tracer::{Launch, LaunchError, Supervised};

use crate::failure::{Failure, report};
use crate::table::describe::count;
use ends::EndedRecording;
use error::RecordError;
use exchange::Exchange;
use native::Rerun;
pub use native::processor;
use output::Output;
use program::{Emulator, Program};
use qmp::QmpListener;
use system::MachineStart;

/// Where programs ran that were executed and have no trace.
pub const OUTSIDE: &str = "outside the emulation";

/// The environment variable that names the plugin, like `--plugin`.
pub const PLUGIN_VARIABLE: &str = "PAGELAB_QEMU_PLUGIN";

/// Arguments of `pagelab record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The file for the trace. An existing file is replaced only when the command starts. A forked process writes
    /// its own trace, FILE.PID. Each program that a process executes writes another one: FILE.PID.exec1 and so on
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Record this many instructions of a thread, then skip again, and so on
    #[arg(long, value_name = "N", requires = "skip", value_parser = clap::value_parser!(u64).range(1..))]
    pub window: Option<u64>,
    /// Record nothing of a thread's first instructions; with --window, nothing between windows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub skip: Option<u64>,
    /// Record at most this many instructions of a thread. A whole machine is ended when each active processor has executed
    /// this many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max: Option<u64>,
    /// Keep the address, size and kind of every access, not only runs of accesses to a page
    #[arg(long)]
    pub lossless: bool,
    /// Record a whole machine: the command is qemu-system-* with its arguments, and addresses are physical
    #[arg(long, conflicts_with_all = ["sysroot", "arch"])]
    pub system: bool,
    /// Where a foreign program finds its libraries
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Do not run the command again. By default it runs again after the recording, without recorder and emulator: five
    /// times, or fewer where that would take longer than ten seconds. Output is discarded. The trace notes the CPU time of
    /// these runs, and `sim` says which share of their median address translation takes. If they would differ (--system,
    /// --sysroot, a foreign program, one that reads a pipe or a terminal, one that was stopped), the trace notes why
    /// instead
    #[arg(long)]
    pub no_native_run: bool,
    /// Refuse programs for any other instruction set
    #[arg(long, value_name = "NAME", value_parser = architectures())]
    pub arch: Option<Architecture>,
    /// The recorder inside QEMU; default: next to pagelab
    #[arg(long, value_name = "FILE")]
    pub plugin: Option<PathBuf>,
    /// The command
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Parses the name of an instruction set.
fn architectures() -> impl TypedValueParser<Value = Architecture> {
    let named = |name: String| Architecture::ALL.into_iter().find(|known| known.name() == name);
    PossibleValuesParser::new(Architecture::ALL.map(Architecture::name))
        .map(move |name| named(name).expect("clap accepts only these names"))
}

/// Runs `pagelab record`. Its exit status is the command's.
pub fn run(arguments: &RecordArguments) -> Result<(), Failure> {
    let record = if arguments.system { record_system } else { record_program };
    let ended = record(arguments).map_err(|error| match (error, signals::arrived()) {
        (RecordError::Command(LaunchError::Interrupted), Some(signal)) => {
            Failure::Stopped(signal, "nothing was recorded")
        }
        (error, _) => Failure::input(error),
    })?;
    match (ended.code(), ended.signal()) {
        (Some(code), _) => std::process::exit(code),
        (None, signal) => std::process::exit(128 + signal.unwrap_or(0)),
    }
}

fn record_program(arguments: &RecordArguments) -> Result<ExitStatus, RecordError> {
    let program = Program::of(&arguments.command)?;
    check(arguments, &program)?;
    let emulator = Emulator::for_program(&program)?;
    let plugin = program::plugin(arguments.plugin.as_deref())?;
    let output = Output::prepare(&arguments.output)?;
    let largest = load_segments::largest_base_page(&program.path, arguments.sysroot.as_deref());
    let jemalloc = jemalloc::of_program(&program.path, arguments.sysroot.as_deref());
    let header = Header {
        max_base_bytes: largest.map(PageSize::bytes),
        jemalloc: jemalloc.map(trace_jemalloc),
        ..header(arguments, program.architecture, &emulator)
    };
    let exchange = exchange(&header)?;
    let mut plugin_option = plugin_argument(&plugin, &output, arguments.max, &exchange);
    plugin_option.push(exec_arguments(&emulator, &plugin, &program, arguments.sysroot.as_deref()));
    let mut command = emulator_command(&emulator, plugin_option);
    // `-U` removes the variable from the program's environment, because only the plugin may see it.
    command.extend(["-U", program::VERSION_VARIABLE, "-0"].map(OsString::from));
    command.push(program.name.clone());
    if let Some(sysroot) = &arguments.sysroot {
        command.extend([OsStr::new("-L"), sysroot.as_os_str()].map(OsStr::to_owned));
    }
    command.push(program.path.clone().into_os_string());
    command.extend(program.arguments.iter().cloned());
    let rerun = Rerun::prepare(arguments, &program);
    let started = start(command, &emulator)?;
    let process = started.process();
    let ended = wait(started);
    let is_foreign = program.architecture.name() != std::env::consts::ARCH;
    let foreign = if is_foreign && arguments.sysroot.is_none() { FOREIGN } else { "" };
    let output = finish(&exchange, output, process, &emulator, ended, foreign)?;
    let native = rerun.map_or_else(Native::Unknown, |rerun| rerun.measure(ended));
    if std::io::stderr().is_terminal() {
        summarize(&output, &arguments.output);
        report_native(&output, &native);
    }
    note(&output, native);
    Ok(ended)
}

/// Reports the trace, and what to do with it. `named`: its path as the user gave it. Not for a standard error that is no terminal,
/// because that is the command's own.
fn summarize(output: &Output, named: &Path) {
    let path = results::printable(&named.display().to_string());
    let instructions = ends::instructions(output.path()).map(|executed| count(executed, "instruction"));
    let size = std::fs::metadata(output.path()).ok().map(|file| format_bytes(file.len()));
    let facts: Vec<String> = instructions.into_iter().chain(size).collect();
    let simulated = results::command_line(&["pagelab".to_owned(), "sim".to_owned(), named.display().to_string()]);
    report(format_args!("pagelab: {path}: {}; simulate it with: {simulated}", facts.join(", ")));
}

/// Reports that the command ran again without the recorder, which the user would otherwise not notice.
fn report_native(output: &Output, native: &Native) {
    let path = results::printable(&output.path().display().to_string());
    let runs = match native {
        Native::Measured(time) => {
            let runs = count(time.runs.len() as u64, "native run");
            let cpu_s = median(&mut time.sorted_s(NativeRun::cpu_s)).unwrap_or_default();
            format!("{runs} of the command took {cpu_s:.3} s of CPU time (median)")
        }
        Native::Unknown(why) => format!("no CPU time of a native run: {}", results::printable(why)),
    };
    report(format_args!("pagelab: {path}: {runs}"));
}

/// Notes the command's CPU time without the recorder in the trace. If this fails, the trace is still complete.
fn note(output: &Output, native: Native) {
    if let Err(error) = output.note(&Notes { native }) {
        let path = output.path().display();
        report(format_args!("pagelab: {path}: the CPU time without the recorder could not be noted: {error}"));
    }
}

fn trace_jemalloc(found: policy::inspect::Jemalloc) -> trace::Jemalloc {
    trace::Jemalloc { file: found.file, built_for_bytes: found.built_for.map(PageSize::bytes) }
}

/// Checks the traces of a recording that has ended, and reports problems. `hint` is a possible reason if nothing was
/// recorded, as in [`RecordError::NothingRecorded`].
fn finish(
    exchange: &Exchange,
    mut output: Output,
    process: u32,
    emulator: &Emulator,
    ended: ExitStatus,
    hint: &str,
) -> Result<Output, RecordError> {
    let nothing_recorded = || emulator.nothing_recorded(ended, hint.to_owned() + &newer(emulator));
    if !exchange.has_begun() {
        return Err(nothing_recorded());
    }
    output.keep();
    let recorded = EndedRecording { output: output.path(), process, status: ended, is_written: exchange.is_written() };
    let has_recorded = recorded.check_first()?;
    recorded.check_others();
    match (has_recorded, recorded.is_written) {
        (true, true) => Ok(output),
        (false, true) => Err(nothing_recorded()),
        (_, false) => Err(RecordError::Incomplete { ended: ended.to_string(), output: output.path().to_owned() }),
    }
}

/// The hint if a program for another architecture does not start.
const FOREIGN: &str = "; a dynamic program for another instruction set needs --sysroot with its libraries";

/// The hint if QEMU is newer than the tested versions; empty otherwise.
fn newer(emulator: &Emulator) -> String {
    let (version, tested) = (&emulator.reported.version, program::TESTED_VERSIONS);
    if emulator.is_newer_than_tested() {
        format!("; version {version} is newer than the tested ones: if that is why, put one of {tested} first in PATH")
    } else {
        String::new()
    }
}

fn record_system(arguments: &RecordArguments) -> Result<ExitStatus, RecordError> {
    let (name, rest) = arguments.command.split_first().expect("the command is required");
    let path = tracer::resolve(name)?;
    let architecture = system::architecture(&path)?;
    system::refuse_acceleration(rest)?;
    let emulator = Emulator::at(path)?;
    let plugin = program::plugin(arguments.plugin.as_deref())?;
    let monitor = |error| RecordError::Monitor { path: emulator.path.clone(), error };
    let listener = QmpListener::open().map_err(monitor)?;
    let output = Output::prepare(&arguments.output)?;
    let exchange = exchange(&header(arguments, architecture, &emulator))?;
    let mut plugin_option = plugin_argument(&plugin, &output, arguments.max, &exchange);
    plugin_option.push(format!(",memory={}", hex(&listener.file("memory"))));
    let mut socket = OsString::from("unix:");
    socket.push(OsStr::from_bytes(&qmp::escape_commas(&listener.socket())));
    let mut command = emulator_command(&emulator, plugin_option);
    command.extend(rest.iter().cloned());
    command.extend(["-S", "-qmp"].map(OsString::from));
    command.push(socket);
    let started = start(command, &emulator)?;
    let mut machine = system::start_machine(&listener, &started, system::stays_stopped(rest));
    if !matches!(machine, Ok(MachineStart::Running { .. } | MachineStart::Ended)) {
        started.kill();
    }
    let process = started.process();
    if let (Some(max), Ok(MachineStart::Running { monitor: connection })) = (arguments.max, &mut machine)
        && system::end_when_complete(connection, &started, &exchange).map_err(monitor)?
    {
        report(format_args!(
            "pagelab: {max} instructions of each processor are recorded (--max), so the machine was ended"
        ));
    }
    let ended = wait(started);
    match machine {
        Ok(MachineStart::Running { .. } | MachineStart::Ended) => {
            let output = finish(&exchange, output, process, &emulator, ended, "")?;
            if std::io::stderr().is_terminal() {
                summarize(&output, &arguments.output);
            }
            note(&output, Native::Unknown("a whole machine was recorded".to_owned()));
            Ok(ended)
        }
        Ok(MachineStart::Accelerated) => Err(RecordError::Accelerated("KVM is on".to_owned())),
        Err(error) => Err(monitor(error)),
    }
}

fn check(arguments: &RecordArguments, program: &Program) -> Result<(), RecordError> {
    let architecture = program.architecture;
    if let Some(expected) = arguments.arch.filter(|expected| *expected != architecture) {
        return Err(RecordError::OtherArchitecture { path: program.path.clone(), found: architecture, expected });
    }
    match &arguments.sysroot {
        Some(path) if !path.is_dir() => Err(RecordError::NoSysroot { path: path.clone(), architecture }),
        _ => Ok(()),
    }
}

fn header(arguments: &RecordArguments, architecture: Architecture, emulator: &Emulator) -> Header {
    let window = arguments.skip.map(|skip| Window { skip_instructions: skip, record_instructions: arguments.window });
    Header {
        command: arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        architecture: architecture.name().to_owned(),
        system: arguments.system,
        columns: Columns { kinds: true, accesses: true, addresses: arguments.lossless },
        window,
        max_instructions: arguments.max,
        emulator: Some(emulator.reported.clone()),
        ..Header::of(format!("pagelab {}", env!("CARGO_PKG_VERSION")))
    }
}

fn exchange(header: &Header) -> Result<Exchange, RecordError> {
    Exchange::open(header).map_err(|error| RecordError::ExchangeDirectory { path: std::env::temp_dir(), error })
}

/// The first words of the emulator's command: its path and the plugin option.
fn emulator_command(emulator: &Emulator, plugin_option: OsString) -> Vec<OsString> {
    vec![emulator.path.clone().into_os_string(), OsString::from("-plugin"), plugin_option]
}

fn plugin_argument(plugin: &Path, output: &Output, max: Option<u64>, exchange: &Exchange) -> OsString {
    let mut bytes = qmp::escape_commas(plugin);
    bytes.extend(format!(",output={},header={}", hex(output.path()), hex(&exchange.header())).bytes());
    let (device, inode) = output.identity();
    bytes.extend(format!(",identity={device}:{inode}").bytes());
    bytes.extend(max.map(|max| format!(",max={max}")).unwrap_or_default().bytes());
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// Plugin arguments with which the recorder also records programs that the recorded one executes.
fn exec_arguments(emulator: &Emulator, plugin: &Path, program: &Program, sysroot: Option<&Path>) -> String {
    // The executed programs may have other working directories, so paths must be absolute.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| absolute(path));
    let named = [
        ("emulator", Some(absolute(&emulator.path))),
        ("plugin", Some(plugin.to_owned())),
        ("program", Some(canonical(&program.path))),
        ("sysroot", sysroot.map(canonical)),
    ];
    let arguments = named.into_iter().filter_map(|(name, path)| Some(format!(",{name}={}", hex(&path?))));
    arguments.collect()
}

fn hex(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts the emulator. Signals that stop pagelab are passed on to it, and it dies with pagelab.
fn start(command: Vec<OsString>, emulator: &Emulator) -> Result<Supervised, RecordError> {
    // An empty value overrides an inherited one: the plugin then detects the API version itself.
    let version = emulator.plugin_api_version().unwrap_or_default();
    let launch = Launch {
        command,
        user: None,
        variables: vec![(program::VERSION_VARIABLE.into(), version.into())],
        stdin: None,
        stdout: None,
        stderr: None,
        disable_thp: false,
        own_session: None,
        control_group: None,
        limit: None,
    };
    signals::catch(Forward::Same).map_err(LaunchError::from)?;
    Ok(Supervised::start(&launch)?)
}

/// Waits for the emulator to end. If a signal stopped pagelab, kills the remaining processes of the recording.
fn wait(started: Supervised) -> ExitStatus {
    let ended = started.wait();
    drop(started);
    // From here on only traces are read, so a signal may end pagelab at once.
    signals::restore_defaults();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_does_not_split_paths() {
        let exchange = Exchange::open(&Header::of("a test")).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let output = Output::prepare(&directory.path().join("c,d")).unwrap();
        let argument = plugin_argument(Path::new("/a,b/plugin.so"), &output, Some(5), &exchange);
        let argument = argument.to_str().unwrap();
        assert!(argument.starts_with("/a,,b/plugin.so,output=2f"), "{argument}");
        assert!(argument.contains("632c64,header=2f"), "{argument}");
        assert_eq!((argument.matches(',').count(), argument.ends_with(",max=5")), (6, true), "{argument}");
    }
}
