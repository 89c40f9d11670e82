//! `copies`: runs several copies of a command at the same time, by default one on every processor, as kernel benchmarks do to see
//! how a cost scales with processors.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tracer::child::die_with_parent;
use workloads::random::mix;

use super::WorkloadError;
use super::report::Report;

/// The name of this program in command lines.
const PAGELAB: &str = "pagelab";

/// Arguments of `copies`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The number of copies, or `processors` for one on each processor that this process may use
    #[arg(long, default_value = "processors", value_parser = count)]
    count: Count,
    /// The command; `pagelab` is this program. All copies must print the same output
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The number of copies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    /// One copy on each processor.
    Processors,
    /// This number of copies.
    Number(usize),
}

fn count(text: &str) -> Result<Count, String> {
    match (text, text.parse()) {
        ("processors", _) => Ok(Count::Processors),
        (_, Ok(number)) if number > 0 => Ok(Count::Number(number)),
        _ => Err("expected `processors`, or a number above 0".to_owned()),
    }
}

/// Why the copies have no result.
#[derive(Debug, thiserror::Error)]
pub enum CopiesError {
    /// The processors cannot be listed or selected.
    #[error("the processors of this process cannot be listed or selected: {0}")]
    Processors(#[source] nix::Error),
    /// The thread that starts a copy cannot be created.
    #[error("no thread can be started for each copy: {0}; raise the limit of threads (ulimit -u), or run fewer copies")]
    NoThread(#[source] io::Error),
    /// A copy cannot be started.
    #[error("{program} cannot be run: {source}")]
    NotStarted {
        /// The name of the program.
        program: String,
        source: io::Error,
    },
    /// A copy failed.
    #[error("copy {copy} of {program} ended with {status}")]
    Failed {
        /// The number of the copy, from 1.
        copy: usize,
        /// The name of the program.
        program: String,
        /// The exit status of the copy.
        status: ExitStatus,
    },
    /// Two copies printed different output.
    #[error("wrong answer: copy {copy} of {program} printed different output than copy 1")]
    Differs {
        /// The number of the copy, from 1.
        copy: usize,
        /// The name of the program.
        program: String,
    },
}

/// The output of a copy, and how long it ran, in seconds.
type CopyResult = (Vec<u8>, f64);

/// Runs the copies, each on its own processor as long as there are enough.
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let processors = processors().map_err(CopiesError::Processors)?;
    let copies = match arguments.count {
        Count::Processors => processors.len(),
        Count::Number(number) => number,
    };
    let start = Start::default();
    let all: Vec<Result<CopyResult, CopiesError>> = std::thread::scope(|scope| {
        let (start, command) = (&start, &arguments.command);
        let threads = (0..copies).map(|copy| {
            let processor = processors[copy % processors.len()];
            Builder::new().spawn_scoped(scope, move || run_copy(copy + 1, processor, command, start))
        });
        let threads = threads.collect::<io::Result<Vec<_>>>();
        start.decide(if threads.is_ok() { Decision::WhenReady(copies) } else { Decision::Never });
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("a copy's thread does not panic");
        let threads = threads.map_err(CopiesError::NoThread)?;
        Ok::<_, CopiesError>(threads.into_iter().map(join).collect())
    })?;
    let all = all.into_iter().collect::<Result<Vec<CopyResult>, CopiesError>>()?;
    let program = || arguments.command[0].clone();
    if let Some(copy) = all.iter().position(|(printed, _)| *printed != all[0].0) {
        return Err(CopiesError::Differs { copy: copy + 1, program: program() }.into());
    }
    let checksum = all[0].0.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte)));
    let times = || all.iter().map(|(_, seconds)| *seconds);
    Ok(Report::new("copies", checksum)
        .argument("count", copies)
        .figure("fastest_s", times().fold(f64::INFINITY, f64::min))
        .figure("slowest_s", times().fold(0.0, f64::max)))
}

/// Whether the copies start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Decision {
    /// Not all copies have a thread yet.
    #[default]
    Pending,
    /// The copies start when this number of threads is ready.
    WhenReady(usize),
    /// The copies do not start, because a thread could not be created.
    Never,
}

/// Lets the copies start at the same time, once each has a thread.
#[derive(Debug, Default)]
struct Start {
    state: Mutex<(Decision, usize)>,
    changed: Condvar,
}

impl Start {
    fn decide(&self, decision: Decision) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = decision;
        self.changed.notify_all();
    }

    /// Waits until all threads are ready, and returns whether the copies start.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        self.changed.notify_all();
        let is_waiting = |(decision, ready): &mut (Decision, usize)| match decision {
            Decision::Pending => true,
            Decision::WhenReady(all) => *ready < *all,
            Decision::Never => false,
        };
        let state = self.changed.wait_while(state, is_waiting).unwrap_or_else(PoisonError::into_inner);
        state.0 != Decision::Never
    }
}

/// Runs a copy on a processor. The thread that starts a copy does nothing but wait for it, and PR_SET_PDEATHSIG kills the
/// copy when that thread ends. So the copy ends with this process.
fn run_copy(copy: usize, processor: usize, command: &[String], start: &Start) -> Result<CopyResult, CopiesError> {
    let pinned = pin(processor).map_err(CopiesError::Processors);
    // Every thread must reach this barrier even after an error, because the other threads wait for it.
    if !start.wait() {
        return Ok((Vec::new(), 0.0));
    }
    pinned?;
    let program = command[0].clone();
    let not_started = |source| CopiesError::NotStarted { program: program.clone(), source };
    let mut child = if program == PAGELAB {
        Command::new(std::env::current_exe().map_err(not_started)?)
    } else {
        Command::new(&program)
    };
    child.args(&command[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let started = Instant::now();
    let ended = die_with_parent(&mut child).output().map_err(not_started)?;
    if ended.status.success() {
        Ok((ended.stdout, started.elapsed().as_secs_f64()))
    } else {
        Err(CopiesError::Failed { copy, program, status: ended.status })
    }
}

/// The processors that this process may use.
fn processors() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap_or(false)).collect())
}

/// Pins this thread, and the processes it starts, to a processor.
fn pin(processor: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}
