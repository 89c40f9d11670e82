//! [`run_bare`] makes a bare trial: the program is started like a traced one, and then runs without filter and tracer.

use std::io;
use std::path::Path;
use std::time::Duration;

use host::if_exists;
use policy::Exit;

use super::after_root::AfterRoot;
use super::ended::{Ended, Usage};
use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::ptrace::{self, Stop, Tid};
use crate::signals;
use crate::subreaper::{self, RootOutcome, Subreaper};

/// Interval at which to check whether the processes that outlive the root have ended.
const LEFTOVERS_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How long to wait for the root's end before checking again that the subreaper, which reports it, still exists.
const ROOT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a program without filter and tracer until its tree has ended. The program is traced until its exec, so
/// that its wall time begins at the same instruction as that of a traced one. Processes that outlive the root
/// get the same time as in [`super::run`] with `Leftovers::KillAfter(grace)`. Call it under the same conditions
/// as [`super::run`].
pub fn run_bare(launch: &Launch, grace: Duration) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    let thp = launch.disable_thp.then_some(ThpSetting::Disabled);
    let (subreaper, mut started) = launch::start(launch, Vec::new(), thp)?;
    signals::forward_to_subreaper(subreaper.process());
    signals::forward_to(started.tid);
    let start_ns = started.release().map_err(LaunchError::from).and_then(|()| detach_at_exec(&mut started, &path));
    let end = start_ns.as_ref().ok().and_then(|_| end_of_root(&subreaper));
    signals::stop_forwarding();
    if start_ns.is_err() {
        subreaper.end();
    }
    let leftovers = end_of_tree(&subreaper, grace);
    if leftovers.is_err() {
        subreaper.end();
    }
    subreaper.wait();
    signals::stop_forwarding_to_subreaper();
    let (start_ns, used) = (start_ns?, subreaper.used().ok_or(LaunchError::Interrupted)?);
    let (exit, end_ns) = match end {
        Some((status, end_ns)) if libc::WIFSIGNALED(status) => (Exit::Signal(libc::WTERMSIG(status)), end_ns),
        Some((status, end_ns)) => (Exit::Code(libc::WEXITSTATUS(status)), end_ns),
        None => (Exit::Signal(libc::SIGKILL), subreaper::monotonic_ns()),
    };
    Ok(Ended {
        wall_s: end_ns.saturating_sub(start_ns) as f64 * 1e-9,
        usage: Usage::from(used),
        time_was_up: subreaper.time_is_up(),
        ..leftovers?.ended(exit)
    })
}

/// Follows a program to the end of its exec and detaches there. Returns the time of the exec
/// ([`subreaper::monotonic_ns`]).
fn detach_at_exec(started: &mut Started, path: &Path) -> Result<u64, LaunchError> {
    let tid = started.tid;
    loop {
        match retry(|| ptrace::wait(tid))?.1 {
            Stop::Exec => {
                let start_ns = subreaper::monotonic_ns();
                detach(tid)?;
                return Ok(start_ns);
            }
            Stop::Exited(_) | Stop::Killed(_) => {
                return Err(started.failure(path).unwrap_or(LaunchError::Interrupted));
            }
            Stop::Group => ptrace::listen(tid).or_else(ignore_esrch)?,
            Stop::Signal(signal) => ptrace::resume(tid, signal).or_else(ignore_esrch)?,
            _ => ptrace::resume(tid, 0).or_else(ignore_esrch)?,
        }
    }
}

/// Detaches from a stopped task. A task that was killed has left its stop and stops once more before its end;
/// it must be detached there, because it waits for its tracer.
fn detach(tid: Tid) -> io::Result<()> {
    loop {
        match ptrace::detach(tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => return result,
        }
        if matches!(retry(|| ptrace::wait(tid))?.1, Stop::Exited(_) | Stop::Killed(_)) {
            return Ok(());
        }
    }
}

/// Ignores ESRCH: a task that was killed meanwhile is no longer stopped.
fn ignore_esrch(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// How and when the root ended; `None` if the subreaper killed it, or was killed.
fn end_of_root(subreaper: &Subreaper) -> Option<(libc::c_int, u64)> {
    loop {
        match subreaper.wait_for_root(ROOT_POLL_INTERVAL) {
            RootOutcome::Runs => {}
            RootOutcome::Ended { status, at_ns } => return Some((status, at_ns)),
            RootOutcome::Killed => return None,
        }
    }
}

/// What happened to the processes that outlived the root.
struct LeftoversEnd {
    /// `None`: no process outlived the root.
    after: Option<AfterRoot>,
    killed: usize,
}

impl LeftoversEnd {
    fn ended(&self, exit: Exit) -> Ended {
        Ended {
            killed_leftovers: self.killed,
            outlived_s: self.after.as_ref().map_or(0.0, AfterRoot::elapsed_s),
            outlived_cpu_s: self.after.as_ref().map_or(0.0, AfterRoot::cpu_s),
            cut_short: self.killed > 0 && self.after.as_ref().is_some_and(AfterRoot::was_cut),
            ..Ended::untraced(exit)
        }
    }
}

/// Lets processes that outlive the root run until their time is up. Then the subreaper kills those that are left.
fn end_of_tree(subreaper: &Subreaper, grace: Duration) -> io::Result<LeftoversEnd> {
    if descendants(subreaper.process())?.is_empty() {
        return Ok(LeftoversEnd { after: None, killed: 0 });
    }
    let mut after = AfterRoot::new();
    while !subreaper.is_over() {
        if subreaper::is_ending() || !after.has_time_left(grace) {
            let killed = descendants(subreaper.process())?.len();
            subreaper.end();
            return Ok(LeftoversEnd { after: Some(after), killed });
        }
        let left = descendants(subreaper.process())?;
        after.sample(|| left.clone(), || left.clone());
        std::thread::sleep(LEFTOVERS_POLL_INTERVAL);
    }
    Ok(LeftoversEnd { after: Some(after), killed: 0 })
}

/// The descendants of a process that still exist; none on kernels without CONFIG_PROC_CHILDREN.
fn descendants(process: Tid) -> io::Result<Vec<Tid>> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let list = if_exists(host::content(format!("/proc/{parent}/task/{parent}/children")))?;
        let children = list.iter().flat_map(|list| list.split_ascii_whitespace());
        found.extend(children.filter_map(|child| child.parse::<Tid>().ok()));
        next += 1;
    }
    Ok(found.split_off(1))
}

/// Repeats a call that a signal interrupts. The handler has already forwarded the signal to the program.
fn retry<T>(mut body: impl FnMut() -> io::Result<T>) -> io::Result<T> {
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

    /// Kills a program in its exec, and detaches from it as `run_bare` does. Returns how the root ended, and after what time.
    fn kill_in_exec() -> (Option<libc::c_int>, Duration) {
        let launch = Launch::of_true();
        let (subreaper, mut started) = launch::start(&launch, Vec::new(), None).unwrap();
        started.release().unwrap();
        while !matches!(ptrace::wait(started.tid).unwrap().1, Stop::Exec) {
            ptrace::resume(started.tid, 0).unwrap();
        }
        let since = Instant::now();
        ptrace::kill(started.tid);
        detach(started.tid).unwrap();
        let end = subreaper.wait_for_root(subreaper::NO_DEATH_TIMEOUT);
        let took = since.elapsed();
        subreaper.end();
        subreaper.wait();
        let status = if let RootOutcome::Ended { status, .. } = end { Some(status) } else { None };
        (status, took)
    }

    #[test]
    fn a_program_killed_in_its_exec_can_end() {
        for _ in 0..50 {
            let (status, took) = kill_in_exec();
            assert!(status.is_some_and(|status| libc::WIFSIGNALED(status)), "{status:?} after {took:?}");
        }
    }
}
