//! The tree of processes under the tracer, from the start of its root to the end of its last task.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use study::cause::Cause;
use study::trial::Exit;

use super::calls;
use super::filter;
use super::launch::{self, Launch, LaunchError, Started};
use super::paused::{Lost, Paused};
use super::ptrace::{self, Stop, Tid};
use super::registers::NATIVE;
use super::rewriting::Rewriting;
use super::tasks::{Kinship, Task, Tasks};
use crate::signals;

/// Sees the memory of the tree's processes while it is still there.
pub trait Witness {
    /// The last task that uses this process's memory is about to end.
    fn ends(&mut self, process: Tid);
    /// A large range is about to be unmapped.
    fn unmaps(&mut self, process: Tid, start: u64, end: u64);
}

/// What becomes of processes that outlive the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They run on, traced, and the tracer stays with them.
    Follow,
    /// They get this long to end by themselves and are then killed.
    KillAfter(Duration),
}

/// How a tree ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How the root ended.
    pub exit: Exit,
    /// From the root's first instruction to the end of its teardown, less what its witness took.
    pub wall_s: f64,
    /// User and system time and faults of the tree, as its ended processes accumulate them.
    pub usage: Usage,
    /// Time for which stopped tasks were in the tracer's hands, summed.
    pub tracer_s: f64,
    /// Calls of the program that were answered and not passed on, and how often.
    pub answered: BTreeMap<String, u64>,
    /// What the tracer knows about why a policy may not have held, with the bytes concerned.
    pub causes: BTreeMap<Cause, u64>,
    /// Processes that outlived the root and were killed.
    pub killed_leftovers: usize,
}

/// Resources of ended processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Time in user mode.
    pub user_s: f64,
    /// Time in the kernel.
    pub system_s: f64,
    /// Faults without I/O.
    pub minor_faults: i64,
    /// Faults with I/O.
    pub major_faults: i64,
}

/// What the tracer collects on the way.
#[derive(Default)]
pub struct Findings {
    /// Calls that were answered.
    pub answered: BTreeMap<String, u64>,
    /// Causes with bytes.
    pub causes: BTreeMap<Cause, u64>,
}

impl Findings {
    /// Notes that a call was answered in the kernel's place.
    pub fn answer(&mut self, call: &str) {
        *self.answered.entry(call.to_string()).or_insert(0) += 1;
    }

    /// Notes a cause and the bytes that it concerns.
    pub fn cause(&mut self, cause: Cause, bytes: u64) {
        *self.causes.entry(cause).or_insert(0) += bytes;
    }
}

struct Tree<'a> {
    rewriting: &'a Rewriting,
    witness: Option<&'a mut dyn Witness>,
    tasks: Tasks,
    /// Tasks that stopped before the event that announces them.
    unannounced: HashSet<Tid>,
    root: Tid,
    root_started: Option<Instant>,
    root_ended: Option<(Exit, Instant)>,
    witnessed_root: Duration,
    in_hand: Duration,
    findings: Findings,
}

/// Runs a program under the tracer until its tree has ended. To be called from one thread at a time and
/// from the thread whose children the program's orphans become (the first one).
pub fn run<'a>(
    launch: &Launch,
    rewriting: &'a Rewriting,
    witness: Option<&'a mut dyn Witness>,
    leftovers: Leftovers,
) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    let watches = rewriting.watches(witness.is_some());
    adopt_orphans()?;
    let before = Usage::of_children();
    let mut started = launch::start(launch, filter::program(NATIVE.audit_arch, &watches))?;
    let mut tree = Tree::new(started.tid, rewriting, witness);
    signals::leash(started.tid);
    let followed =
        started.release().map_err(LaunchError::from).and_then(|()| tree.follow(leftovers, &mut started, &path));
    signals::unleash();
    let killed_leftovers = followed?;
    Ok(tree.ended(killed_leftovers, Usage::of_children().since(&before)))
}

impl<'a> Tree<'a> {
    fn new(root: Tid, rewriting: &'a Rewriting, witness: Option<&'a mut dyn Witness>) -> Tree<'a> {
        let mut tasks = Tasks::default();
        tasks.insert(root, Task::first(root));
        Tree {
            rewriting,
            witness,
            tasks,
            unannounced: HashSet::new(),
            root,
            root_started: None,
            root_ended: None,
            witnessed_root: Duration::ZERO,
            in_hand: Duration::ZERO,
            findings: Findings::default(),
        }
    }

    fn ended(self, killed_leftovers: usize, usage: Usage) -> Ended {
        let (exit, end) = self.root_ended.expect("the root has ended when nothing is left to follow");
        let start = self.root_started.unwrap_or(end);
        Ended {
            exit,
            wall_s: (end - start).saturating_sub(self.witnessed_root).as_secs_f64(),
            usage,
            tracer_s: self.in_hand.as_secs_f64(),
            answered: self.findings.answered,
            causes: self.findings.causes,
            killed_leftovers,
        }
    }

    /// Follows the tree to its end. Returns how many processes had to be killed.
    fn follow(&mut self, leftovers: Leftovers, started: &mut Started, path: &Path) -> Result<usize, LaunchError> {
        let mut killed = 0;
        while !self.tasks.is_empty() {
            if self.root_ended.is_some() && leftovers != Leftovers::Follow && killed == 0 {
                killed = self.end_leftovers(leftovers);
            }
            match ptrace::wait(-1) {
                Ok((tid, stop)) => self.handle(tid, stop),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.root_started.is_none()
            && let Some(error) = started.failure(path)
        {
            return Err(error);
        }
        Ok(killed)
    }

    /// Gives processes that outlive the root their time, then kills them. Returns how many it killed.
    fn end_leftovers(&mut self, leftovers: Leftovers) -> usize {
        let Leftovers::KillAfter(grace) = leftovers else { return 0 };
        let deadline = Instant::now() + grace;
        while !self.tasks.is_empty() && Instant::now() < deadline {
            match ptrace::try_wait() {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        let left = self.tasks.processes();
        for process in &left {
            // SAFETY: kill has no memory effects; the process is a tracee that was not waited for yet.
            unsafe { libc::kill(*process, libc::SIGKILL) };
        }
        left.len()
    }

    fn handle(&mut self, tid: Tid, stop: Stop) {
        let since = Instant::now();
        // A request on a task that was killed meanwhile fails; its end is reported on its own.
        let _ = self.react(tid, stop);
        self.in_hand += since.elapsed();
    }

    fn react(&mut self, tid: Tid, stop: Stop) -> io::Result<()> {
        match stop {
            Stop::Exited(code) => self.gone(tid, Exit::Code(code)),
            Stop::Killed(signal) => self.gone(tid, Exit::Signal(signal)),
            Stop::Seccomp => return self.watched_call(tid),
            Stop::Clone => return self.birth(tid, None),
            Stop::Fork => return self.birth(tid, Some(Kinship::Copy)),
            Stop::Vfork => return self.birth(tid, Some(Kinship::Borrower)),
            Stop::Exec => return self.executed(tid),
            Stop::Exit => return self.ending(tid),
            Stop::Trap if self.tasks.get(tid).is_none() => return self.early(tid),
            Stop::Trap => return ptrace::resume(tid, 0),
            Stop::GroupStop => return ptrace::listen(tid),
            Stop::Syscall => return self.first_calls(tid),
            Stop::Signal(signal) => return ptrace::resume(tid, signal),
        }
        Ok(())
    }

    fn gone(&mut self, tid: Tid, exit: Exit) {
        if tid == self.root {
            self.root_ended = Some((exit, Instant::now()));
            signals::unleash();
        }
        self.tasks.remove(tid);
        self.unannounced.remove(&tid);
        self.adopt_abandoned();
    }

    fn watched_call(&mut self, tid: Tid) -> io::Result<()> {
        let Some(task) = self.tasks.get(tid) else { return ptrace::resume(tid, 0) };
        let (process, space) = (task.process, task.space.clone());
        let handled = Paused::at_entry(tid).and_then(|paused| {
            if let Some(witness) = &mut self.witness
                && let Some((start, end)) = calls::unmapped_range(&paused)
            {
                witness.unmaps(process, start, end);
            }
            let mut scene = calls::Scene {
                rewriting: self.rewriting,
                tasks: &mut self.tasks,
                findings: &mut self.findings,
                process,
            };
            calls::serve(&mut scene, &mut space.borrow_mut(), paused)
        });
        match handled {
            Err(Lost::Stopped(stop)) => self.react(tid, stop),
            Ok(()) | Err(Lost::Gone) => Ok(()),
        }
    }

    fn birth(&mut self, parent: Tid, kinship: Option<Kinship>) -> io::Result<()> {
        let child = ptrace::event_message(parent)? as Tid;
        let kinship = kinship.unwrap_or_else(|| match process_of(child) {
            // clone() without SIGCHLD: a thread, or a process that the C library started with CLONE_VM.
            Some(process) if process == child => Kinship::Copy,
            _ => Kinship::Thread,
        });
        self.tasks.born(parent, child, kinship);
        if self.unannounced.remove(&child) {
            ptrace::resume(child, 0)?;
        }
        ptrace::resume(parent, 0)
    }

    /// A task that stopped before its announcement waits for it.
    fn early(&mut self, tid: Tid) -> io::Result<()> {
        self.unannounced.insert(tid);
        self.adopt_abandoned();
        Ok(())
    }

    /// The maker of a task can be killed between making and announcing it. Such tasks are let go here.
    fn adopt_abandoned(&mut self) {
        let abandoned: Vec<Tid> =
            self.unannounced.iter().copied().filter(|tid| !maker_of(*tid).is_some_and(|m| self.knows(m))).collect();
        for tid in abandoned {
            self.unannounced.remove(&tid);
            self.tasks.insert(tid, Task::first(process_of(tid).unwrap_or(tid)));
            let _ = ptrace::resume(tid, 0);
        }
    }

    fn knows(&self, process: Tid) -> bool {
        self.tasks.processes().contains(&process)
    }

    fn executed(&mut self, tid: Tid) -> io::Result<()> {
        let former = ptrace::event_message(tid)? as Tid;
        self.tasks.executed(tid, former);
        if !calls::is_native(tid) {
            self.findings.cause(Cause::ForeignAbi, 0);
        }
        if calls::lost_privilege(tid) {
            self.findings.cause(Cause::PrivilegeNotGained, 0);
        }
        if tid == self.root && self.root_started.is_none() {
            self.root_started = Some(Instant::now());
        }
        let early_memory =
            self.rewriting.advice.is_some() && !calls::early_memory(tid, self.rewriting.large).is_empty();
        match self.tasks.get_mut(tid) {
            // The next two stops are the end of execve and the first call of the new image.
            Some(task) if early_memory => {
                task.stops_to_first_call = Some(2);
                ptrace::resume_to_syscall(tid)
            }
            _ => ptrace::resume(tid, 0),
        }
    }

    /// On the way to the first call of a new image, whose zeroed data (bss) no call has mapped.
    fn first_calls(&mut self, tid: Tid) -> io::Result<()> {
        let Some(task) = self.tasks.get_mut(tid) else { return ptrace::resume(tid, 0) };
        match task.stops_to_first_call {
            Some(2) => {
                task.stops_to_first_call = Some(1);
                ptrace::resume_to_syscall(tid)
            }
            Some(_) => {
                task.stops_to_first_call = None;
                match calls::advise_early_memory(tid, self.rewriting) {
                    Err(Lost::Stopped(stop)) => self.react(tid, stop),
                    Ok(()) | Err(Lost::Gone) => Ok(()),
                }
            }
            None => ptrace::resume(tid, 0),
        }
    }

    fn ending(&mut self, tid: Tid) -> io::Result<()> {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
            let process = task.process;
            if self.tasks.is_last_user_of_memory(tid) {
                self.bear_witness(process);
            }
        }
        ptrace::resume(tid, 0)
    }

    fn bear_witness(&mut self, process: Tid) {
        let Some(witness) = &mut self.witness else { return };
        let since = Instant::now();
        witness.ends(process);
        if process == self.root {
            self.witnessed_root += since.elapsed();
        }
    }
}

impl Usage {
    /// Of the children of this process that have ended and were waited for.
    pub fn of_children() -> Usage {
        // SAFETY: rusage is plain data, and the pointer is live.
        let raw = unsafe {
            let mut raw: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut raw);
            raw
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Usage {
            user_s: seconds(raw.ru_utime),
            system_s: seconds(raw.ru_stime),
            minor_faults: raw.ru_minflt,
            major_faults: raw.ru_majflt,
        }
    }

    /// What was added since an earlier reading.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
        }
    }
}

/// Makes orphans of the tree children of this process, so that their resources are counted too.
fn adopt_orphans() -> io::Result<()> {
    // SAFETY: prctl with plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn process_of(tid: Tid) -> Option<Tid> {
    status_field(tid, "Tgid:")
}

/// The process that made a task: its own for a thread, its parent for a process.
fn maker_of(tid: Tid) -> Option<Tid> {
    match process_of(tid)? {
        process if process == tid => status_field(tid, "PPid:"),
        process => Some(process),
    }
}

fn status_field(tid: Tid, name: &str) -> Option<Tid> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}
