//! Measures the CPU time of the recorded command without the recorder ([`Rerun`]). The recorder slows a program down by a
//! factor of 10 to 100, so after the recording the command runs again, several times if that takes little time.
//!
//! It does not run before the recording, because a command may find its work done the second time (`make`). The recording is
//! complete in any case; only the time is refused if the later run may have done other work.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use host::Host;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::time::TimeValLike;
use policy::Exit;
use results::files;
use trace::{Native, NativeRun, NativeTime};
use tracer::signals::{self, Forward};
use tracer::{Ended, Launch, LaunchError};

use super::RecordArguments;
use super::program::Program;

/// How much longer than the recording the second run may take. A program that mostly waits takes equally long in both
/// runs.
const MAX_EXTRA_TIME: Duration = Duration::from_secs(10);
/// The number of native runs of a command, if they end in [`MAX_RUNS_TIME`].
const MAX_RUNS: usize = 5;
/// No native run starts if the earlier runs and one more, as long as the longest of them, would take longer than this.
const MAX_RUNS_TIME: Duration = Duration::from_secs(10);
/// How long processes may outlive the command, as in a trial of `compare`.
const GRACE: Duration = Duration::from_secs(1);
/// The recorder slows user code down at least by this factor; 10 is usual. Only code that waits for memory is slowed down less.
const MIN_SLOWDOWN: f64 = 2.0;
/// Above this share of the recording's time, the second run took equally long. Then the command may work for a given time instead of
/// towards a result.
const EQUALLY_LONG_RATIO: f64 = 0.9;
/// A recording shorter than this is mostly the recorder's own start, so its time is not compared.
const MIN_COMPARED_S: f64 = 0.05;
/// The second run's standard input if the real one cannot be read twice.
const PROBE: &[u8] = b"\n";

/// What the second run needs to know about the state before the recording.
pub struct Rerun {
    command: Vec<OsString>,
    stdin: Input,
    started: Instant,
    /// User time of all ended children before the recording.
    user_s: f64,
}

/// The standard input of the second run.
enum Input {
    /// Nothing: /dev/null.
    Null,
    /// A file, from this offset on.
    File(u64),
    /// A terminal or a pipe: only the recorded run can read its content, so the second run counts only if it reads
    /// nothing.
    Once,
}

impl Rerun {
    /// Prepares the second run; to be called before the recording begins. The error says why the time cannot be
    /// measured.
    pub fn prepare(arguments: &RecordArguments, program: &Program) -> Result<Rerun, String> {
        if arguments.no_native_run {
            return Err("--no-native-run was given".to_owned());
        }
        if program.architecture.name() != std::env::consts::ARCH {
            let (program, host) = (program.architecture, std::env::consts::ARCH);
            return Err(format!("the program is for {program}, and was recorded on {host}"));
        }
        if arguments.sysroot.is_some() {
            return Err("the program was recorded with the libraries of --sysroot".to_owned());
        }
        if std::fs::metadata(&program.path).is_ok_and(|of| of.mode() & SETUID_OR_SETGID != 0) {
            return Err("the program gains privileges, which it does not under the recorder".to_owned());
        }
        let stdin = Input::of_this_process().map_err(|error| format!("its standard input: {error}"))?;
        let command = arguments.command.clone();
        Ok(Rerun { command, stdin, started: Instant::now(), user_s: children_user_s() })
    }

    /// Runs the command again. `recorded`: how it ended under the recorder.
    pub fn measure(self, recorded: ExitStatus) -> Native {
        self.time(recorded).map_or_else(Native::Unknown, Native::Measured)
    }

    fn time(self, recorded: ExitStatus) -> Result<NativeTime, String> {
        let Some(code) = recorded.code().filter(|_| signals::arrived().is_none()) else {
            return Err(format!("the recorded command was stopped ({recorded})"));
        };
        let recording = Taken { wall_s: self.started.elapsed().as_secs_f64(), user_s: children_user_s() - self.user_s };
        let limit = self.started.elapsed() + MAX_EXTRA_TIME;
        let (started, mut longest, mut runs) = (Instant::now(), Duration::ZERO, Vec::new());
        while runs.len() < MAX_RUNS && (runs.is_empty() || started.elapsed() + longest < MAX_RUNS_TIME) {
            let run_started = Instant::now();
            runs.push(self.time_once(code, recording, limit)?);
            longest = longest.max(run_started.elapsed());
        }
        let (processor_id, processor) = processor();
        Ok(NativeTime { runs, processor_id, processor })
    }

    fn time_once(&self, code: i32, recording: Taken, limit: Duration) -> Result<NativeRun, String> {
        let input = self.stdin.open().map_err(|error| format!("its standard input: {error}"))?;
        let started = Instant::now();
        let ended = run(self.command.clone(), &input, limit).map_err(|error| error.to_string())?;
        let taken = Taken { wall_s: started.elapsed().as_secs_f64(), user_s: ended.usage.user_s };
        if signals::arrived().is_some() {
            return Err("the run without the recorder was interrupted".to_owned());
        }
        check_same_work(&ended, code, taken, recording)?;
        if !input.is_untouched() {
            return Err(
                "the command reads its standard input, which was not a file and can be read only once".to_owned()
            );
        }
        Ok(NativeRun { user_s: ended.usage.user_s, system_s: ended.usage.system_s })
    }
}

/// The mode bits that let a program run as another user or group.
const SETUID_OR_SETGID: u32 = 0o6000;

/// The time that a run took.
#[derive(Clone, Copy)]
struct Taken {
    wall_s: f64,
    user_s: f64,
}

/// Refuses a second run that evidently did other work than the recorded run.
fn check_same_work(ended: &Ended, code: i32, taken: Taken, recording: Taken) -> Result<(), String> {
    if ended.time_was_up {
        Err("the run without the recorder took longer than the recording".to_owned())
    } else if ended.exit != Exit::Code(code) {
        Err(format!("the run without the recorder ended differently ({}, recorded: code {code})", ended.exit))
    } else if ended.killed_leftovers > 0 {
        Err("the command leaves processes running".to_owned())
    } else if took_equally_long(taken, recording) {
        Err(format!(
            "the run without the recorder took {:.2} s of user time and the recording {:.2} s: either the command works for a time, \
             and not for a result, or it waits for memory most of the time (then give sim its time with --run-time)",
            taken.user_s, recording.user_s
        ))
    } else {
        Ok(())
    }
}

/// Whether the recorder hardly slowed the run down. A command that works for a given time takes that time in both runs, in wall time
/// or in user time.
fn took_equally_long(taken: Taken, recording: Taken) -> bool {
    let is_long = |taken_s: f64, recording_s: f64| taken_s > recording_s * EQUALLY_LONG_RATIO;
    taken.user_s > MIN_COMPARED_S
        && taken.user_s * MIN_SLOWDOWN > recording.user_s
        && (is_long(taken.wall_s, recording.wall_s) || is_long(taken.user_s, recording.user_s))
}

/// Runs a command and discards its output.
fn run(command: Vec<OsString>, input: &OpenInput, limit: Duration) -> Result<Ended, LaunchError> {
    let launch = Launch {
        own_session: None,
        command,
        user: None,
        variables: Vec::new(),
        stdin: input.descriptor()?,
        stdout: discarding(io::stdout())?,
        stderr: discarding(io::stderr())?,
        disable_thp: false,
        control_group: None,
        limit: Some(limit),
    };
    signals::catch(Forward::Kill)?;
    let ended = tracer::run_bare(&launch, GRACE);
    signals::restore_defaults();
    ended
}

/// A pipe whose content is discarded; `None` if the stream is /dev/null. Some programs do less work if their output is
/// /dev/null, so it is kept.
fn discarding(stream: impl AsFd) -> io::Result<Option<OwnedFd>> {
    if is_null(stream)? {
        return Ok(None);
    }
    let (mut from, to) = io::pipe()?;
    // The thread ends when the last writer closes the pipe.
    std::thread::Builder::new().spawn(move || io::copy(&mut from, &mut io::sink()))?;
    Ok(Some(to.into()))
}

fn is_null(stream: impl AsFd) -> io::Result<bool> {
    let (stat, null) = (fstat(stream)?, nix::sys::stat::stat("/dev/null")?);
    Ok(stat.st_rdev == null.st_rdev && file_type(&stat) == SFlag::S_IFCHR)
}

fn file_type(stat: &nix::sys::stat::FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// The open standard input of the second run.
enum OpenInput {
    Inherited,
    File(File),
    Probe(PipeReader),
}

impl Input {
    fn of_this_process() -> io::Result<Input> {
        let stdin = io::stdin();
        if is_null(&stdin)? {
            return Ok(Input::Null);
        }
        if file_type(&fstat(&stdin)?) != SFlag::S_IFREG {
            return Ok(Input::Once);
        }
        Ok(Input::File(File::from(stdin.as_fd().try_clone_to_owned()?).stream_position()?))
    }

    fn open(&self) -> io::Result<OpenInput> {
        match self {
            Input::Null => Ok(OpenInput::Inherited),
            Input::File(offset) => {
                // The file is reopened to get an offset of its own, because the recorded run has moved the offset of
                // the inherited one.
                let mut file = files::open_to_read(Path::new("/proc/self/fd/0"))?;
                file.seek(SeekFrom::Start(*offset))?;
                Ok(OpenInput::File(file))
            }
            Input::Once => {
                let (from, mut to) = io::pipe()?;
                to.write_all(PROBE)?;
                Ok(OpenInput::Probe(from))
            }
        }
    }
}

impl OpenInput {
    fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            OpenInput::Inherited => Ok(None),
            OpenInput::File(file) => Ok(Some(file.try_clone()?.into())),
            OpenInput::Probe(pipe) => Ok(Some(pipe.try_clone()?.into())),
        }
    }

    /// Whether the run left the probe unread.
    fn is_untouched(&self) -> bool {
        match self {
            OpenInput::Inherited | OpenInput::File(_) => true,
            OpenInput::Probe(pipe) => {
                let (mut pipe, mut unread) = (pipe, Vec::new());
                pipe.read_to_end(&mut unread).is_ok() && unread == PROBE
            }
        }
    }
}

/// User time of all children that have ended, in seconds.
fn children_user_s() -> f64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| usage.user_time().num_microseconds() as f64 * 1e-6)
}

/// This processor's ID, as in machine files, and its model name; empty if unknown.
pub fn processor() -> (String, String) {
    let host = Host::open("/");
    let id = host.as_ref().ok().and_then(|host| host.processor().ok()).map(|processor| processor.id);
    let name = host.ok().and_then(|host| host.machine().ok()).map(|machine| machine.cpu_model);
    (id.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_the_recorder_hardly_slowed_down_took_equally_long() {
        let took = |run: (f64, f64), recording: (f64, f64)| {
            let taken = |(wall_s, user_s): (f64, f64)| Taken { wall_s, user_s };
            took_equally_long(taken(run), taken(recording))
        };
        assert!(!took((0.5, 0.5), (5.0, 5.0)), "code that computes");
        assert!(!took((0.12, 0.11), (0.3, 0.22)), "code that waits for memory");
        assert!(took((1.0, 1.0), (1.2, 1.0)), "user time is limited");
        assert!(took((2.0, 1.5), (2.1, 2.0)), "wall time is limited");
        assert!(!took((3.1, 0.1), (3.4, 0.4)), "mostly asleep");
        assert!(!took((0.04, 0.04), (0.04, 0.04)), "too short to say");
    }
}
