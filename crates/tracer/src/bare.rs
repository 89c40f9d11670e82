//! Bare trials: the program is started like a traced one, and then runs without filter and tracer.

use std::io;
use std::path::Path;
use std::time::Duration;

use host::if_there;
use study::trial::Exit;

use super::after_root::AfterRoot;
use super::ended::{Ended, Usage};
use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::ptrace::{self, Stop, Tid};
use crate::signals;
use crate::subreaper::{self, Root, Subreaper};

/// Interval at which to check whether the processes that outlive the root have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How long to wait for the root's end before checking again that the subreaper, which reports it, still exists.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Runs a program without filter and tracer until its tree has ended. The program is traced until its exec, so
/// that its wall time begins at the same instruction as that of a traced one. Processes that outlive the root
/// get the same time as in [`super::run`] with `Leftovers::KillAfter(grace)`. Call it under the same conditions
/// as [`super::run`].
///
/// # Errors
/// Those of [`super::run`].
pub fn run_bare(launch: &Launch, grace: Duration) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    let thp = launch.disable_thp.then_some(ThpSetting::Disabled);
    let (subreaper, mut started) = launch::start(launch, Vec::new(), thp)?;
    signals::leash_subreaper(subreaper.process());
    signals::leash(started.tid);
    let begun_ns = started.release().map_err(LaunchError::from).and_then(|()| let_go_at_exec(&mut started, &path));
    let end = begun_ns.as_ref().ok().and_then(|_| end_of_root(&subreaper));
    signals::unleash();
    if begun_ns.is_err() {
        subreaper.end();
    }
    let ended = end_of_tree(&subreaper, grace);
    if ended.is_err() {
        subreaper.end();
    }
    subreaper.wait();
    signals::unleash_subreaper();
    let (begun_ns, used) = (begun_ns?, subreaper.used().ok_or(LaunchError::Interrupted)?);
    let (exit, end_ns) = match end {
        Some((status, end_ns)) if libc::WIFSIGNALED(status) => (Exit::Signal(libc::WTERMSIG(status)), end_ns),
        Some((status, end_ns)) => (Exit::Code(libc::WEXITSTATUS(status)), end_ns),
        None => (Exit::Signal(libc::SIGKILL), subreaper::monotonic_ns()),
    };
    Ok(Ended {
        wall_s: end_ns.saturating_sub(begun_ns) as f64 * 1e-9,
        usage: Usage::from(used),
        time_was_up: subreaper.time_is_up(),
        ..ended?.of(exit)
    })
}

/// Follows a program to the end of its exec and detaches there. Returns the time of that ([`subreaper::monotonic_ns`]).
fn let_go_at_exec(started: &mut Started, path: &Path) -> Result<u64, LaunchError> {
    let tid = started.tid;
    loop {
        match interrupted(|| ptrace::wait(tid))?.1 {
            Stop::Exec => {
                let begun_ns = subreaper::monotonic_ns();
                let_go(tid)?;
                return Ok(begun_ns);
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

/// Detaches from a stopped task. A task that was killed has left its stop and stops once more before its end;
/// it must be detached there, because only its tracer can let it end.
fn let_go(tid: Tid) -> io::Result<()> {
    loop {
        match ptrace::detach(tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => return result,
        }
        if matches!(interrupted(|| ptrace::wait(tid))?.1, Stop::Exited(_) | Stop::Killed(_)) {
            return Ok(());
        }
    }
}

/// Ignores ESRCH: a task that was killed meanwhile has no stop to leave.
fn gone(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// How and when the root ended; `None` if the subreaper killed it, or was killed.
fn end_of_root(subreaper: &Subreaper) -> Option<(libc::c_int, u64)> {
    loop {
        match subreaper.wait_for_root(ASK_AGAIN) {
            Root::Runs => {}
            Root::Ended { status, at_ns } => return Some((status, at_ns)),
            Root::Killed => return None,
        }
    }
}

/// What happened to the processes that outlived the root.
struct Leftovers {
    /// `None`: no process outlived the root.
    after: Option<AfterRoot>,
    killed: usize,
}

impl Leftovers {
    fn of(&self, exit: Exit) -> Ended {
        Ended {
            killed_leftovers: self.killed,
            outlived_s: self.after.as_ref().map_or(0.0, AfterRoot::lasted_s),
            outlived_cpu_s: self.after.as_ref().map_or(0.0, AfterRoot::cpu_s),
            cut_short: self.killed > 0 && self.after.as_ref().is_some_and(AfterRoot::was_cut),
            ..Ended::of_nothing_traced(exit)
        }
    }
}

/// Gives the processes that outlive the root their time, and then has the subreaper kill the rest.
///
/// # Errors
/// The remaining processes cannot be listed.
fn end_of_tree(subreaper: &Subreaper, grace: Duration) -> io::Result<Leftovers> {
    if descendants(subreaper.process())?.is_empty() {
        return Ok(Leftovers { after: None, killed: 0 });
    }
    let mut after = AfterRoot::new();
    while !subreaper.is_over() {
        if subreaper::is_ending() || !after.goes_on(grace) {
            let killed = descendants(subreaper.process())?.len();
            subreaper.end();
            return Ok(Leftovers { after: Some(after), killed });
        }
        let left = descendants(subreaper.process())?;
        after.look(|| left.clone(), || left.clone());
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(Leftovers { after: Some(after), killed: 0 })
}

/// The descendants of a process that still exist; none on kernels without CONFIG_PROC_CHILDREN.
///
/// # Errors
/// The kernel has such lists, and one cannot be read.
fn descendants(process: Tid) -> io::Result<Vec<Tid>> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let list = if_there(host::content(format!("/proc/{parent}/task/{parent}/children")))?;
        let children = list.iter().flat_map(|list| list.split_ascii_whitespace());
        found.extend(children.filter_map(|child| child.parse::<Tid>().ok()));
        next += 1;
    }
    Ok(found.split_off(1))
}

/// Repeats a call that a signal interrupts. The signal itself was already passed on to the leashed program.
fn interrupted<T>(mut body: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match body() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Does what `run_bare` does, with the program killed in its exec. Returns how the root ended, and after what time.
    fn killed_in_exec() -> (Option<libc::c_int>, Duration) {
        let launch = Launch::of_true();
        let (subreaper, mut started) = launch::start(&launch, Vec::new(), None).unwrap();
        started.release().unwrap();
        while !matches!(ptrace::wait(started.tid).unwrap().1, Stop::Exec) {
            ptrace::resume(started.tid, 0).unwrap();
        }
        let since = Instant::now();
        ptrace::kill(started.tid);
        let_go(started.tid).unwrap();
        let end = subreaper.wait_for_root(subreaper::PATIENCE);
        let took = since.elapsed();
        subreaper.end();
        subreaper.wait();
        let status = if let Root::Ended { status, .. } = end { Some(status) } else { None };
        (status, took)
    }

    #[test]
    fn a_program_that_is_killed_in_its_exec_ends_there() {
        for _ in 0..50 {
            let (status, took) = killed_in_exec();
            assert!(status.is_some_and(|status| libc::WIFSIGNALED(status)), "{status:?} after {took:?}");
        }
    }
}
