//! `copies`: a command once on every processor at the same time, as benchmarks of the kernel are run to see how a cost grows
//! with processors.

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

/// The word that stands for this program.
const PAGELAB: &str = "pagelab";

/// Arguments of `copies`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How many: a number, or `processors` for one on each that this process may use
    #[arg(long, default_value = "processors", value_parser = count)]
    count: Count,
    /// The command; `pagelab` is this program. What each copy prints must be the same
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How many copies there are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    /// One on each processor.
    Processors,
    /// So many.
    Number(usize),
}

fn count(text: &str) -> Result<Count, String> {
    match (text, text.parse()) {
        ("processors", _) => Ok(Count::Processors),
        (_, Ok(number)) if number > 0 => Ok(Count::Number(number)),
        _ => Err("expected `processors`, or a number above 0".to_owned()),
    }
}

/// Why copies have no answer.
#[derive(Debug, thiserror::Error)]
pub enum CopiesError {
    /// The processors are not told, or cannot be chosen.
    #[error("sched_setaffinity: {0}")]
    Processors(#[source] nix::Error),
    /// A copy has no thread that starts it.
    #[error("no thread can be started for each copy: {0}; raise the limit of threads (ulimit -u), or run fewer copies")]
    NoThread(#[source] io::Error),
    /// A copy cannot be started.
    #[error("{program} cannot be run: {source}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A copy failed.
    #[error("copy {copy} of {program} ended with {status}")]
    Failed {
        /// Which, from 1.
        copy: usize,
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// Two copies did not print the same.
    #[error("wrong answer: copy {copy} of {program} printed something else than copy 1")]
    Differs {
        /// Which, from 1.
        copy: usize,
        /// The program.
        program: String,
    },
}

/// What a copy printed, and how long it ran, seconds.
type Ran = (Vec<u8>, f64);

/// Runs the copies, each on a processor of its own as far as there are so many.
///
/// # Errors
/// [`CopiesError`].
pub fn run(arguments: &Arguments) -> Result<Report, WorkloadError> {
    let processors = processors().map_err(CopiesError::Processors)?;
    let copies = match arguments.count {
        Count::Processors => processors.len(),
        Count::Number(number) => number,
    };
    let start = Start::default();
    let all: Vec<Result<Ran, CopiesError>> = std::thread::scope(|scope| {
        let (start, command) = (&start, &arguments.command);
        let begun = (0..copies).map(|copy| {
            let processor = processors[copy % processors.len()];
            Builder::new().spawn_scoped(scope, move || one(copy + 1, processor, command, start))
        });
        let begun = begun.collect::<io::Result<Vec<_>>>();
        start.give(if begun.is_ok() { Go::When(copies) } else { Go::Never });
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("a copy's thread does not panic");
        let begun = begun.map_err(CopiesError::NoThread)?;
        Ok::<_, CopiesError>(begun.into_iter().map(join).collect())
    })?;
    let all = all.into_iter().collect::<Result<Vec<Ran>, CopiesError>>()?;
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

/// Whether the copies begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Go {
    /// Not all of them have a thread yet.
    #[default]
    NotYet,
    /// As soon as this number is ready.
    When(usize),
    /// One of them has no thread.
    Never,
}

/// Where copies wait for each other, until it is known that each has a thread.
#[derive(Debug, Default)]
struct Start {
    state: Mutex<(Go, usize)>,
    changed: Condvar,
}

impl Start {
    fn give(&self, go: Go) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0 = go;
        self.changed.notify_all();
    }

    /// Waits until all are ready. Whether they begin.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        self.changed.notify_all();
        let is_waiting = |(go, ready): &mut (Go, usize)| match go {
            Go::NotYet => true,
            Go::When(all) => *ready < *all,
            Go::Never => false,
        };
        let state = self.changed.wait_while(state, is_waiting).unwrap_or_else(PoisonError::into_inner);
        state.0 != Go::Never
    }
}

/// A copy on a processor. The thread has nothing else to do, so that the copy ends when this process does.
fn one(copy: usize, processor: usize, command: &[String], start: &Start) -> Result<Ran, CopiesError> {
    let chosen = choose(processor).map_err(CopiesError::Processors);
    // Every thread comes here, whatever happened to it: the others wait for it.
    if !start.wait() {
        return Ok((Vec::new(), 0.0));
    }
    chosen?;
    let program = command[0].clone();
    let not_started = |source| CopiesError::NotStarted { program: program.clone(), source };
    let mut child = if program == PAGELAB {
        Command::new(std::env::current_exe().map_err(not_started)?)
    } else {
        Command::new(&program)
    };
    child.args(&command[1..]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let begun = Instant::now();
    let ended = die_with_parent(&mut child).output().map_err(not_started)?;
    if ended.status.success() {
        Ok((ended.stdout, begun.elapsed().as_secs_f64()))
    } else {
        Err(CopiesError::Failed { copy, program, status: ended.status })
    }
}

/// The processors that this process may use.
fn processors() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap_or(false)).collect())
}

/// This thread, and what it starts, on a processor.
fn choose(processor: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}
