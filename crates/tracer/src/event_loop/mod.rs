//! The tree of processes under the tracer, from the start of its root to the end of its last task.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use study::cause::Cause;
use study::trial::Exit;

use super::afterlife::Afterlife;
use super::calls;
use super::filter::{self, Watch};
use super::hugetlb;
use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::leaving::{self, Extent};
use super::pace::{Pace, Served};
use super::paused::{Lost, Paused};
use super::ptrace::{self, Stop, Tid};
use super::registers::NATIVE;
use super::rewriting::Rewriting;
use super::scene::{Findings, Scene};
use super::tasks::{Kinship, Space, Task, Tasks};
use crate::minder::{self, Minder};
use crate::signals;

/// Sees the memory of the tree's processes while it is still there.
pub trait Witness {
    /// The root is about to load its program.
    fn begins(&mut self, process: Tid);
    /// The last task that uses a memory is about to end. It need not be the first task of its process:
    /// that one can have ended, and have no memory any more. `/proc/TASK` shows the memory all the same.
    fn ends(&mut self, task: Tid);
    /// A task is about to unmap a range, or to drop its content.
    fn unmaps(&mut self, task: Tid, start: u64, end: u64);
    /// How much of the memory that goes it wants to see.
    fn extent(&self) -> Extent {
        Extent::Large
    }
    /// A task is about to make a call that may give back pages of a pool, of which its process has at most so many bytes. The
    /// kernel keeps no peak of them.
    fn shrinks(&mut self, _task: Tid, _process: Tid, _pool_bytes: u64) {}
    /// A process was made with a copy of another's memory.
    fn forked(&mut self, _parent: Tid, _child: Tid) {}
    /// A task is about to have its memory, which no other process has, replaced by that of a new image ([`Extent::All`] only); it
    /// can still fail.
    fn replaces(&mut self, _task: Tid) {}
    /// A process has the memory of a new image.
    fn replaced(&mut self, _process: Tid) {}
}

/// What becomes of processes that outlive the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They run on, traced, and the tracer stays with them.
    Follow,
    /// They are killed once they have done nothing for this long, and after a minute at the latest.
    KillAfter(Duration),
}

/// How a tree ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How the root ended.
    pub exit: Exit,
    /// From the root's first instruction to the end of its teardown, less [`Looks::apart_s`].
    pub wall_s: f64,
    /// User and system time and faults of the tree, as its ended processes accumulate them. What nobody waits for (a
    /// program that ignores SIGCHLD) the kernel does not count.
    pub usage: Usage,
    /// Time for which stopped tasks were in the tracer's hands, summed, looks included. What switches and wake-ups cost is
    /// not in it.
    pub tracer_s: f64,
    /// Stops of the tree's tasks, of every kind.
    pub stops: u64,
    /// How the calls that stopped were served.
    pub pace: Pace,
    /// What the witness took.
    pub looks: Looks,
    /// Calls of the program that were answered and not passed on, and how often.
    pub answered: BTreeMap<String, u64>,
    /// What the tracer knows about why a policy may not have held, with the bytes concerned.
    pub causes: BTreeMap<Cause, u64>,
    /// Processes that outlived the root and were killed.
    pub killed_leftovers: usize,
    /// Whether the root was killed because it had had its time ([`Launch::limit`]).
    pub time_was_up: bool,
    /// How long processes went on after the root's end, until they ended or were killed.
    pub outlived_s: f64,
    /// CPU time of these processes, as far as it was seen.
    pub outlived_cpu_s: f64,
    /// Whether processes that outlived the root were still at work when they were killed.
    pub cut_short: bool,
}

/// What a witness took, by what it did to the wall time of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Looks {
    /// While the whole tree, or its ending root, stood still for it: the wall time does not contain it.
    pub apart_s: f64,
    /// While other tasks of the tree could run: the wall time contains all of it that they waited for, which cannot be told.
    pub within_s: f64,
    /// After the root had ended.
    pub after_s: f64,
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

/// How often the tasks that outlive the minder are looked at.
/// What processes did that outlived the root.
#[derive(Clone, Copy, Debug, Default)]
struct Outlived {
    s: f64,
    cpu_s: f64,
    was_cut: bool,
}

/// How often the tasks that outlive the root are looked at.
const DOUBT: Duration = Duration::from_millis(5);

struct Tree<'a> {
    rewriting: &'a Rewriting,
    /// The calls that stop for the sake of the policy.
    changed: Vec<Watch>,
    witness: Option<&'a mut dyn Witness>,
    tasks: Tasks,
    /// Tasks that stopped before the event that announces them.
    unannounced: HashSet<Tid>,
    /// Tasks that ended before it.
    gone_unannounced: HashSet<Tid>,
    root: Tid,
    root_started: Option<Instant>,
    root_ended: Option<(Exit, Instant)>,
    looks: Looks,
    in_hand: Duration,
    served: Served,
    findings: Findings,
    /// Says when the tree has ended: wait then gives no child of it (ECHILD).
    minder: Minder,
    /// Whether the minder, and so the tree, is still there.
    minded: bool,
    /// What was seen after the root's end.
    outlived: Outlived,
    /// From now on every process of the tree is killed on sight.
    killing: bool,
    /// The trial is lost, and no memory needs to be looked at any more.
    lost: bool,
    /// Why the tree was given up.
    refused: Option<io::Error>,
}

/// Runs a program under the tracer until its tree has ended. To be called from one thread at a time.
pub fn run<'a>(
    launch: &Launch,
    rewriting: &'a Rewriting,
    mut witness: Option<&'a mut dyn Witness>,
    leftovers: Leftovers,
) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    let changed = rewriting.watches();
    let witnessed = witness.as_ref().map(|witness| leaving::watches(witness.extent(), &changed)).unwrap_or_default();
    let watches = [changed.clone(), witnessed].concat();
    ptrace::forget_ready();
    let (stops, thp) = (ptrace::stops(), ThpSetting::of(launch, rewriting));
    let (minder, mut started) = launch::start(launch, filter::program(&watches), thp)?;
    if let Some(witness) = &mut witness {
        witness.begins(started.tid);
    }
    signals::leash_minder(minder.process());
    let mut tree = Tree::new(started.tid, minder, rewriting, changed, witness);
    signals::leash_in(started.tid, started.session);
    let followed =
        started.release().map_err(LaunchError::from).and_then(|()| tree.follow(leftovers, &mut started, &path));
    signals::unleash();
    signals::unleash_minder();
    let killed_leftovers = followed?;
    started.finish();
    tree.ended(killed_leftovers, ptrace::stops() - stops).ok_or(LaunchError::Interrupted)
}

impl<'a> Tree<'a> {
    fn new(
        root: Tid,
        minder: Minder,
        rewriting: &'a Rewriting,
        changed: Vec<Watch>,
        witness: Option<&'a mut dyn Witness>,
    ) -> Tree<'a> {
        let mut tasks = Tasks::default();
        tasks.insert(root, Task::first(root));
        Tree {
            rewriting,
            changed,
            witness,
            tasks,
            unannounced: HashSet::new(),
            gone_unannounced: HashSet::new(),
            root,
            root_started: None,
            root_ended: None,
            looks: Looks::default(),
            in_hand: Duration::ZERO,
            served: Served::default(),
            findings: Findings::default(),
            minder,
            minded: true,
            outlived: Outlived::default(),
            killing: false,
            lost: false,
            refused: None,
        }
    }

    /// How it all ended; `None` where the root ended before its program began.
    fn ended(self, killed_leftovers: usize, stops: u64) -> Option<Ended> {
        let ((exit, end), start) = (self.root_ended?, self.root_started?);
        let usage = Usage::from(self.minder.used()?);
        Some(Ended {
            exit,
            wall_s: ((end - start).as_secs_f64() - self.looks.apart_s).max(0.0),
            usage,
            tracer_s: self.in_hand.as_secs_f64(),
            stops,
            pace: self.served.pace(),
            looks: self.looks,
            answered: self.findings.answered,
            causes: self.findings.causes,
            killed_leftovers,
            time_was_up: self.minder.time_is_up(),
            outlived_s: self.outlived.s,
            outlived_cpu_s: self.outlived.cpu_s,
            cut_short: killed_leftovers > 0 && self.outlived.was_cut,
        })
    }

    /// Follows the tree to its end. Returns how many processes had to be killed.
    fn follow(&mut self, leftovers: Leftovers, started: &mut Started, path: &Path) -> Result<usize, LaunchError> {
        let mut killed = 0;
        while self.minded {
            if self.root_ended.is_some() && self.tasks.is_empty() {
                // The monitor of its terminal is the last of the tree.
                started.finish();
            }
            if let (Some(_), Leftovers::KillAfter(grace), false) = (self.root_ended, leftovers, self.killing) {
                self.wait_for_leftovers(grace);
                if self.minded && !self.killing {
                    killed = self.kill_all();
                }
                continue;
            }
            match ptrace::wait(-1) {
                Ok((tid, stop)) => self.handle(tid, stop),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.minder.used().is_none() {
            self.go_on_unminded();
        }
        match self.refused.take() {
            Some(error) => Err(LaunchError::GivenUp(error)),
            None if self.minder.is_stuck() => Err(LaunchError::Immortal(self.tasks.processes())),
            None if self.root_started.is_none() => started.failure(path).map_or(Ok(killed), Err),
            None => Ok(killed),
        }
    }

    /// Somebody killed the minder, and then nothing tells the end of the tree but its tasks' own.
    fn go_on_unminded(&mut self) {
        self.refused.get_or_insert_with(|| io::Error::other("somebody killed the process that minds it"));
        self.kill_all();
        while !self.tasks.is_empty() {
            match ptrace::try_wait(-1) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => {
                    std::thread::sleep(DOUBT);
                    self.tasks.retain(ptrace::is_traced_here);
                }
                Err(_) => return,
            }
        }
    }

    /// Gives processes that outlive the root their time.
    fn wait_for_leftovers(&mut self, grace: Duration) {
        let outlives = !self.tasks.is_empty();
        let mut after = Afterlife::new();
        while self.minded && !minder::is_ending() && after.goes_on(grace) {
            after.look(|| self.tasks.ids(), || self.tasks.processes());
            match ptrace::try_wait(-1) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        if outlives {
            self.outlived = Outlived { s: after.lasted_s(), cpu_s: after.cpu_s(), was_cut: after.was_cut() };
        }
    }

    /// Kills what is left, and from now on what it has just made. Returns how many processes it killed.
    fn kill_all(&mut self) -> usize {
        self.killing = true;
        let left = self.tasks.processes();
        left.iter().for_each(|process| ptrace::kill(*process));
        // What has escaped the tracer is the minder's.
        if self.minded {
            self.minder.end();
        }
        left.len()
    }

    fn handle(&mut self, tid: Tid, stop: Stop) {
        if tid == self.minder.process() {
            self.minded = false;
            return;
        }
        let since = Instant::now();
        if !self.killing && minder::is_ending() {
            self.lost = true;
            self.kill_all();
        }
        match self.killing {
            true => self.put_down(tid, stop),
            false => self.settle(tid, stop),
        }
        self.in_hand += since.elapsed();
    }

    /// Lets a task go nowhere but to its end.
    fn put_down(&mut self, tid: Tid, stop: Stop) {
        let gone_on = match stop {
            Stop::Exited(code) => return self.gone(tid, Exit::Code(code)),
            Stop::Killed(signal) => return self.gone(tid, Exit::Signal(signal)),
            // What only outlived the root is a part of the trial.
            Stop::Exit => self.ending(tid),
            _ => {
                ptrace::kill(tid);
                ptrace::resume(tid, 0).map_err(Lost::from)
            }
        };
        // It is already gone.
        drop(gone_on);
    }

    /// Reacts to a stop, and to the stop in which a task was found while reacting.
    fn settle(&mut self, tid: Tid, mut stop: Stop) {
        loop {
            match self.react(tid, stop) {
                Err(Lost::Stopped(next)) => stop = next,
                Ok(()) => return,
                Err(Lost::Gone) => return self.was_killed(tid),
                Err(Lost::Refused(error)) => {
                    self.refused.get_or_insert(error);
                    self.kill_all();
                    return;
                }
            }
        }
    }

    /// A task was killed meanwhile; its end is reported on its own.
    fn was_killed(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
        }
    }

    fn react(&mut self, tid: Tid, stop: Stop) -> Result<(), Lost> {
        match stop {
            Stop::Exited(code) => self.gone(tid, Exit::Code(code)),
            Stop::Killed(signal) => self.gone(tid, Exit::Signal(signal)),
            Stop::Seccomp => return self.watched_call(tid),
            Stop::Clone => return self.birth(tid, stop),
            Stop::Fork | Stop::Vfork => return self.birth(tid, stop),
            Stop::Exec => return self.executed(tid),
            Stop::Exit => return self.ending(tid),
            Stop::Trap if self.tasks.get(tid).is_none() => self.early(tid),
            Stop::Trap => return self.send_on(tid, 0),
            Stop::Group => return self.stopped(tid),
            Stop::Syscall => return self.first_calls(tid),
            Stop::Signal(libc::SIGSEGV) if self.tries_again(tid) => return self.send_on(tid, 0),
            Stop::Signal(signal) => return self.send_on(tid, signal),
        }
        Ok(())
    }

    /// A task takes part in a stop of its process. Where it is the root's, pagelab may be about to stop with it.
    fn stopped(&mut self, tid: Tid) -> Result<(), Lost> {
        ptrace::listen(tid)?;
        if tid == self.root {
            signals::program_stopped();
        }
        Ok(())
    }

    /// Lets a task run on to where it is next needed.
    fn send_on(&mut self, tid: Tid, signal: i32) -> Result<(), Lost> {
        let to_first_call = self.tasks.get(tid).is_some_and(|task| task.stops_to_first_call.is_some());
        let sent = if to_first_call { ptrace::resume_to_syscall(tid, signal) } else { ptrace::resume(tid, signal) };
        Ok(sent?)
    }

    fn gone(&mut self, tid: Tid, exit: Exit) {
        if tid == self.root {
            self.root_ended = Some((exit, Instant::now()));
            signals::unleash();
        }
        if self.tasks.remove(tid).is_none() {
            self.gone_unannounced.insert(tid);
        }
        self.unannounced.remove(&tid);
        if !self.killing {
            self.adopt_abandoned();
        }
    }

    fn watched_call(&mut self, tid: Tid) -> Result<(), Lost> {
        let Some(task) = self.tasks.get(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let space = task.space.clone();
        let paused = Paused::at_entry(tid)?;
        if ptrace::event_message(tid)? != u64::from(filter::MARK) {
            // A filter of the program's own asks for a tracer. To the program there is none
            // (`__seccomp_filter` in kernel/seccomp.c).
            return paused.finish(-i64::from(libc::ENOSYS));
        }
        self.witness_call(&paused, &space.borrow());
        if !self.changed.iter().any(|watch| watch.stops(paused.number(), &paused.arguments())) {
            return paused.pass();
        }
        let before = ptrace::stops();
        let sent = calls::serve(&mut self.scene(), &mut space.borrow_mut(), paused);
        self.served.count(ptrace::stops() - before);
        sent
    }

    /// Has the witness look at what a call is about to give back. What the root has before its program is pagelab's.
    fn witness_call(&mut self, paused: &Paused, space: &Space) {
        let begun = self.witness.as_ref().filter(|_| self.root_started.is_some());
        let Some(extent) = begun.map(|witness| witness.extent()) else { return };
        let tid = paused.tid();
        if self.rewriting.hugetlb && leaving::may_shrink_pool(paused) {
            let (process, pool_bytes) =
                (self.tasks.get(tid).map_or(tid, |task| task.process), space.huge.backed_bytes());
            self.bear_witness(false, |witness| witness.shrinks(tid, process, pool_bytes));
        }
        for (start, end) in leaving::ranges(paused, space, self.rewriting, extent) {
            self.bear_witness(false, |witness| witness.unmaps(tid, start, end));
        }
        let executes = matches!(paused.number(), libc::SYS_execve | libc::SYS_execveat);
        if executes && self.tasks.is_memory_of_one_process(tid) {
            self.bear_witness(false, |witness| witness.replaces(tid));
        }
    }

    fn scene(&mut self) -> Scene<'_> {
        Scene { rewriting: self.rewriting, tasks: &mut self.tasks, findings: &mut self.findings }
    }

    /// Whether a fault may come from memory that was being moved to other pages at that instant. Each such
    /// fault is tried again once; where it was the program's own it comes back.
    fn tries_again(&mut self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get_mut(tid) else { return false };
        let moved = |address: &u64| task.space.borrow().huge.was_moved(*address);
        let Some(address) = ptrace::fault_address(tid).filter(moved) else { return false };
        let Ok(registers) = ptrace::registers(tid) else { return false };
        let fault = Some((address, registers.words[NATIVE.instruction]));
        let again = task.retried != fault;
        task.retried = if again { fault } else { None };
        again
    }

    fn birth(&mut self, parent: Tid, stop: Stop) -> Result<(), Lost> {
        let child = ptrace::event_message(parent)? as Tid;
        // One that was killed and waited for before this announcement has no tracer any more. It may still be
        // there as a zombie of its parent's, or its id be another's by now.
        if self.gone_unannounced.remove(&child) && !ptrace::is_traced_here(child) {
            return Ok(ptrace::resume(parent, 0)?);
        }
        let kinship = kinship(parent, child, stop);
        self.tasks.born(parent, child, kinship);
        if let (Kinship::Copy, Some(witness)) = (kinship, &mut self.witness) {
            witness.forked(self.tasks.get(parent).map_or(parent, |task| task.process), child);
        }
        let stands = self.unannounced.remove(&child);
        if kinship == Kinship::Copy && self.rewriting.hugetlb {
            self.copy_of_pool_pages(child, stands);
        } else if stands {
            ptrace::resume(child, 0).ok();
        }
        Ok(ptrace::resume(parent, 0)?)
    }

    /// A copy made by fork shares its pool pages until one side writes. The kernel kills the copy when the
    /// pool then is empty (`hugetlb_wp` in mm/hugetlb.c), so where it may not suffice the copy is given
    /// ordinary memory before it runs. Its maker stands still meanwhile.
    fn copy_of_pool_pages(&mut self, child: Tid, mut stands: bool) {
        let Some(task) = self.tasks.get(child) else { return };
        let space = task.space.clone();
        while !stands {
            match ptrace::wait(child) {
                Ok((_, Stop::Trap)) => stands = true,
                Ok((_, stop)) => return self.settle(child, stop),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
        let promised = self.tasks.promised_pages();
        let served = Paused::at_birth(child)
            .and_then(|paused| hugetlb::serve_copy(&mut self.scene(), &mut space.borrow_mut(), paused, promised));
        match served {
            Ok(()) | Err(Lost::Gone) => {}
            Err(Lost::Stopped(stop)) => self.settle(child, stop),
            Err(Lost::Refused(error)) => {
                self.refused.get_or_insert(error);
                self.kill_all();
            }
        }
    }

    /// A task that stopped before its announcement waits for it.
    fn early(&mut self, tid: Tid) {
        self.gone_unannounced.remove(&tid); // it was another one
        self.unannounced.insert(tid);
        self.adopt_abandoned();
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

    fn executed(&mut self, tid: Tid) -> Result<(), Lost> {
        let former = ptrace::event_message(tid)? as Tid;
        self.tasks.executed(tid, former);
        if let Some(witness) = &mut self.witness {
            witness.replaced(tid);
        }
        let native = calls::is_native(tid);
        if !native {
            self.findings.cause(Cause::ForeignAbi, 0);
        }
        if calls::lost_privilege(tid) {
            self.findings.cause(Cause::PrivilegeNotGained, 0);
        }
        if tid == self.root && self.root_started.is_none() {
            self.root_started = Some(Instant::now());
        }
        if let Some(task) = self.tasks.get_mut(tid)
            && native
            && calls::has_early_memory(tid, self.rewriting)
        {
            // The next two stops are the end of execve and the first call of the new image.
            task.stops_to_first_call = Some(2);
        }
        self.send_on(tid, 0)
    }

    /// On the way to the first call of a new image, whose zeroed data (bss) no call has mapped.
    fn first_calls(&mut self, tid: Tid) -> Result<(), Lost> {
        let Some(task) = self.tasks.get_mut(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let left = task.stops_to_first_call.take();
        if left == Some(2) {
            task.stops_to_first_call = Some(1);
            return self.send_on(tid, 0);
        }
        match left {
            Some(_) => calls::advise_early_memory(&mut self.scene(), tid),
            None => self.send_on(tid, 0),
        }
    }

    fn ending(&mut self, tid: Tid) -> Result<(), Lost> {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
            let process = task.process;
            // The first task of a killed process can have ended without a stop.
            let first_is_user = self.tasks.get(process).is_some_and(|first| !first.ending);
            if process != tid && first_is_user && ptrace::is_zombie(process) {
                self.was_killed(process);
            }
            if self.tasks.is_last_user_of_memory(tid) {
                self.bear_witness(process == self.root, |witness| witness.ends(tid));
            }
        }
        Ok(ptrace::resume(tid, 0)?)
    }

    /// Lets the witness look. What that takes is no part of the program's time when nothing else of the
    /// tree could run meanwhile, or when the root is doing its last or has ended.
    fn bear_witness(&mut self, root_is_done: bool, look: impl FnOnce(&mut dyn Witness)) {
        let Some(witness) = self.witness.as_mut().filter(|_| !self.lost && signals::arrived().is_none()) else {
            return;
        };
        let since = Instant::now();
        look(*witness);
        let took = match () {
            () if self.root_ended.is_some() => &mut self.looks.after_s,
            () if root_is_done || self.tasks.is_single() => &mut self.looks.apart_s,
            () => &mut self.looks.within_s,
        };
        *took += since.elapsed().as_secs_f64();
    }
}

impl Ended {
    /// How a tree ended that nobody traced, as far as `exit` says it.
    pub fn of_nothing_traced(exit: Exit) -> Ended {
        Ended {
            exit,
            wall_s: 0.0,
            usage: Usage::default(),
            tracer_s: 0.0,
            stops: 0,
            pace: Pace::default(),
            looks: Looks::default(),
            answered: BTreeMap::new(),
            causes: BTreeMap::new(),
            killed_leftovers: 0,
            time_was_up: false,
            outlived_s: 0.0,
            outlived_cpu_s: 0.0,
            cut_short: false,
        }
    }
}

impl From<libc::rusage> for Usage {
    fn from(raw: libc::rusage) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Usage {
            user_s: seconds(raw.ru_utime),
            system_s: seconds(raw.ru_stime),
            minor_faults: raw.ru_minflt,
            major_faults: raw.ru_majflt,
        }
    }
}

/// How a new task relates to its maker. The event alone does not tell: CLONE_VM comes with each of them.
fn kinship(parent: Tid, child: Tid, stop: Stop) -> Kinship {
    if stop == Stop::Clone && process_of(child).is_some_and(|process| process != child) {
        return Kinship::Thread;
    }
    match ptrace::share_memory(parent, child) {
        Some(true) => Kinship::Borrower,
        Some(false) => Kinship::Copy,
        None if stop == Stop::Vfork => Kinship::Borrower,
        None => Kinship::Copy,
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
    let status = host::content(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}
