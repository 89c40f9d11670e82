//! Bare trials: a program that is started as a traced one is, and then runs without filter and tracer.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use study::trial::Exit;

use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::ptrace::{self, Stop, Tid};
use super::tree::{Ended, Usage, adopt_orphans};
use crate::{host, signals};

/// How often it is looked whether what outlives the root has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Runs a program without filter and tracer until its tree has ended. Until its exec it is traced, so that its wall time begins
/// at the same instruction as that of a traced one. Processes that outlive the root get `grace` to end by themselves.
/// To be called as [`super::run`].
///
/// # Errors
/// Those of [`super::run`].
pub fn run_bare(launch: &Launch, grace: Duration) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    adopt_orphans()?;
    let (before, others) = (Usage::of_children(), children());
    let thp = launch.disable_thp.then_some(ThpSetting::Disabled);
    let mut started = launch::start(launch, Vec::new(), thp)?;
    signals::leash(started.tid);
    let begun = started.release().map_err(LaunchError::from).and_then(|()| let_go_at_exec(&mut started, &path));
    let ran = begun.and_then(|begun| Ok((begun, end_of(started.tid)?, Instant::now())));
    signals::unleash();
    let killed_leftovers = end_leftovers(&others, grace);
    let (begun, exit, end) = ran?;
    Ok(Ended {
        exit,
        wall_s: (end - begun).as_secs_f64(),
        usage: Usage::of_children().since(&before),
        killed_leftovers,
        ..Ended::of_nothing_traced(exit)
    })
}

/// Follows a program to the end of its exec and lets it go there. Returns when that was.
fn let_go_at_exec(started: &mut Started, path: &Path) -> Result<Instant, LaunchError> {
    let tid = started.tid;
    loop {
        match interrupted(|| ptrace::wait(tid))?.1 {
            Stop::Exec => {
                let begun = Instant::now();
                // A program that was killed meanwhile tells its end to whoever waits for it.
                let _ = ptrace::detach(tid);
                return Ok(begun);
            }
            Stop::Exited(_) | Stop::Killed(_) => {
                return Err(started.failure(path).unwrap_or(LaunchError::Interrupted));
            }
            Stop::Group => ptrace::listen(tid).or_else(gone)?,
            Stop::Signal(signal) => ptrace::resume(tid, signal).or_else(gone)?,
            _ => ptrace::resume(tid, 0).or_else(gone)?,
        }
    }
}

/// A task that was killed meanwhile has no stop to leave.
fn gone(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

fn end_of(root: Tid) -> io::Result<Exit> {
    loop {
        match interrupted(|| ptrace::wait(root))?.1 {
            Stop::Exited(code) => return Ok(Exit::Code(code)),
            Stop::Killed(signal) => return Ok(Exit::Signal(signal)),
            _ => {}
        }
    }
}

/// Gives what outlives the root its time, and kills what is left. Returns how many that were.
fn end_leftovers(others: &[Tid], grace: Duration) -> usize {
    let (deadline, mut killed) = (Instant::now() + grace, Vec::new());
    loop {
        let left: Vec<Tid> = children().into_iter().filter(|child| !others.contains(child)).collect();
        if left.is_empty() {
            return killed.len();
        }
        for child in left {
            let lives = !ptrace::has_ended(child);
            if lives && Instant::now() > deadline && !killed.contains(&child) {
                ptrace::kill(child);
                killed.push(child);
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The children of this thread, and of the process's first one, which orphans come to; none on kernels without
/// CONFIG_PROC_CHILDREN.
fn children() -> Vec<Tid> {
    let first = format!("/proc/self/task/{}/children", std::process::id());
    let lists = [first, "/proc/thread-self/children".into()].map(|list| host::content(list).unwrap_or_default());
    lists.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(|child| child.parse().ok()).collect()
}

/// Repeats what a signal interrupts: the signal itself has reached the program on its leash.
fn interrupted<T>(mut body: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match body() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
