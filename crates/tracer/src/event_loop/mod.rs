//! [`run`] starts a program under the tracer and follows its tree from the start of the root to the end of the last task.

mod births;
mod splits;
mod stops;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use policy::Exit;

use super::after_root::{AfterRoot, Leftovers};
use super::call_context::Findings;
use super::ended::{Ended, InspectionTimes, Usage};
use super::filter::{self, Watch};
use super::freed_ranges;
use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::observed_mappings;
use super::pace::Served;
use super::paused::PauseError;
use super::ptrace::{self, Stop, Tid};
use super::refused_requests;
use super::rewriting::Rewriting;
use super::subreaper::{self, Subreaper};
use super::tasks::{Task, Tasks};
use super::ticks::Ticks;
use super::witness::Witness;
use crate::signals;

/// Times of the processes that outlived the root.
#[derive(Clone, Copy, Debug, Default)]
struct Outlived {
    elapsed_s: f64,
    cpu_s: f64,
    was_cut: bool,
}

/// Interval at which the remaining tasks are polled after the subreaper was killed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

struct Tree<'a> {
    rewriting: &'a Rewriting,
    /// The calls that stop because of the policy.
    policy_watches: Vec<Watch>,
    /// The calls that the witness sees after they are made, unless they stop because of the policy.
    mapping_watches: Vec<Watch>,
    witness: Option<&'a mut dyn Witness>,
    tasks: Tasks,
    /// Tasks that stopped before the event that announces them.
    unannounced: HashSet<Tid>,
    /// Tasks that ended before their announcement.
    ended_unannounced: HashSet<Tid>,
    root: Tid,
    root_started: Option<Instant>,
    root_ended: Option<(Exit, Instant)>,
    inspection_times: InspectionTimes,
    handling_time: Duration,
    served: Served,
    findings: Findings,
    /// Ends when the tree has ended: its wait(2) then finds no child (ECHILD).
    subreaper: Subreaper,
    /// Whether the subreaper still runs. While it does, the tree may run too.
    subreaper_runs: bool,
    outlived: Outlived,
    /// Leaves to split, keyed by the task that was interrupted to split them.
    to_split: HashMap<Tid, splits::Leaves>,
    /// Whether every task of the tree is killed at its next stop.
    is_killing: bool,
    /// Whether the trial is lost, so that nothing needs to be inspected any more.
    is_lost: bool,
    /// Why the trial was given up.
    failure: Option<io::Error>,
}

/// Runs a program under the tracer until its tree has ended. Call it on one thread at a time.
pub fn run<'a>(
    launch: &Launch,
    rewriting: &'a Rewriting,
    mut witness: Option<&'a mut dyn Witness>,
    leftovers: Leftovers,
) -> Result<Ended, LaunchError> {
    let path = launch::resolve(launch.command.first().ok_or_else(|| LaunchError::NotFound(Default::default()))?)?;
    let policy_watches = rewriting.watches();
    let witness_watches = witness
        .as_ref()
        .map(|witness| freed_ranges::watches(witness.inspected_removals(), &policy_watches))
        .unwrap_or_default();
    let observed = witness.as_ref().map(|witness| witness.observed_mappings()).unwrap_or_default();
    let mapping_watches = observed_mappings::watches(observed);
    let watches =
        [policy_watches.clone(), witness_watches, mapping_watches.clone(), refused_requests::watches()].concat();
    ptrace::discard_collected();
    let (stops, thp) = (ptrace::stops(), ThpSetting::of(launch, rewriting));
    let (subreaper, mut started) = launch::start(launch, filter::program(&watches), thp)?;
    if let Some(witness) = &mut witness {
        witness.begins(started.tid);
    }
    signals::forward_to_subreaper(subreaper.process());
    let mut tree = Tree::new(started.tid, subreaper, rewriting, policy_watches, witness);
    tree.mapping_watches = mapping_watches;
    signals::forward_in_session(started.tid, started.session);
    let followed =
        started.release().map_err(LaunchError::from).and_then(|()| tree.follow(leftovers, &mut started, &path));
    signals::stop_forwarding();
    signals::stop_forwarding_to_subreaper();
    let killed_leftovers = followed?;
    started.finish();
    tree.ended(killed_leftovers, ptrace::stops() - stops).ok_or(LaunchError::Interrupted)
}

impl<'a> Tree<'a> {
    fn new(
        root: Tid,
        subreaper: Subreaper,
        rewriting: &'a Rewriting,
        policy_watches: Vec<Watch>,
        witness: Option<&'a mut dyn Witness>,
    ) -> Tree<'a> {
        let mut tasks = Tasks::default();
        tasks.insert(root, Task::first(root));
        Tree {
            rewriting,
            policy_watches,
            mapping_watches: Vec::new(),
            witness,
            tasks,
            unannounced: HashSet::new(),
            ended_unannounced: HashSet::new(),
            root,
            root_started: None,
            root_ended: None,
            inspection_times: InspectionTimes::default(),
            handling_time: Duration::ZERO,
            served: Served::default(),
            findings: Findings::default(),
            subreaper,
            subreaper_runs: true,
            outlived: Outlived::default(),
            to_split: HashMap::new(),
            is_killing: false,
            is_lost: false,
            failure: None,
        }
    }

    /// The result; `None` if the root ended before its program began, or if the subreaper was killed.
    fn ended(self, killed_leftovers: usize, stops: u64) -> Option<Ended> {
        let ((exit, end), start) = (self.root_ended?, self.root_started?);
        let usage = Usage::from(self.subreaper.used()?);
        Some(Ended {
            exit,
            wall_s: ((end - start).as_secs_f64() - self.inspection_times.excluded_s).max(0.0),
            usage,
            tracer_s: self.handling_time.as_secs_f64(),
            stops,
            pace: self.served.pace(),
            inspection_times: self.inspection_times,
            answered: self.findings.answered,
            advised_bytes: self.findings.advised_bytes,
            causes: self.findings.causes,
            refused_requests: self.findings.refused_requests.found,
            killed_leftovers,
            time_was_up: self.subreaper.time_is_up(),
            outlived_s: self.outlived.elapsed_s,
            outlived_cpu_s: self.outlived.cpu_s,
            cut_short: killed_leftovers > 0 && self.outlived.was_cut,
        })
    }

    /// Follows the tree to its end. Returns how many processes had to be killed.
    fn follow(&mut self, leftovers: Leftovers, started: &mut Started, path: &Path) -> Result<usize, LaunchError> {
        let needs_ticks = self.rewriting.applied_mechanism().pte_mapped || self.rewriting.watches_heat;
        let ticks = needs_ticks.then(|| Ticks::start(splits::TICK_INTERVAL)).transpose()?;
        let mut killed = 0;
        while self.subreaper_runs {
            if self.root_ended.is_some() && self.tasks.is_empty() {
                // The monitor of the program's terminal is the last process of the tree.
                started.finish();
            }
            if let (Some(_), Leftovers::KillAfter(grace), false) = (self.root_ended, leftovers, self.is_killing) {
                self.wait_for_leftovers(grace);
                if self.subreaper_runs && !self.is_killing {
                    killed = self.kill_all();
                }
                continue;
            }
            match ticks.as_ref().map_or_else(|| ptrace::wait(-1).map(Some), Ticks::wait) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) if self.rewriting.watches_heat => self.tick_witness(),
                Ok(None) => self.interrupt_to_split(),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.subreaper.used().is_none() {
            self.finish_without_subreaper();
        }
        match self.failure.take() {
            Some(error) => Err(LaunchError::GivenUp(error)),
            None if self.subreaper.is_stuck() => Err(LaunchError::Unkillable(self.tasks.processes())),
            None if self.root_started.is_none() => started.failure(path).map_or(Ok(killed), Err),
            None => Ok(killed),
        }
    }

    /// Kills the tree after its subreaper was killed, and waits for the end of every task. Nothing else shows any more that
    /// the tree has ended.
    fn finish_without_subreaper(&mut self) {
        self.failure.get_or_insert_with(|| io::Error::other("its subreaper was killed"));
        self.kill_all();
        while !self.tasks.is_empty() {
            match ptrace::try_wait(-1) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => {
                    std::thread::sleep(POLL_INTERVAL);
                    // A task whose status cannot be read stays in the list until its end is waited for.
                    self.tasks.retain(|tid| ptrace::is_traced_here(tid).unwrap_or(true));
                }
                Err(_) => return,
            }
        }
    }

    /// Lets processes that outlive the root run until their time is up ([`AfterRoot::has_time_left`]).
    fn wait_for_leftovers(&mut self, grace: Duration) {
        let outlives = !self.tasks.is_empty();
        let mut after = AfterRoot::new();
        while self.subreaper_runs && !subreaper::is_ending() && after.has_time_left(grace) {
            after.sample(|| self.tasks.ids(), || self.tasks.processes());
            match ptrace::try_wait(-1) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        if outlives {
            self.outlived = Outlived { elapsed_s: after.elapsed_s(), cpu_s: after.cpu_s(), was_cut: after.was_cut() };
        }
    }

    /// Kills the remaining tasks, and from now on every further task at its first stop. Returns how many processes it killed.
    fn kill_all(&mut self) -> usize {
        self.is_killing = true;
        let left = self.tasks.processes();
        left.iter().for_each(|process| ptrace::kill(*process));
        // Processes that have escaped the tracer are left to the subreaper.
        if self.subreaper_runs {
            self.subreaper.end();
        }
        left.len()
    }

    fn handle(&mut self, tid: Tid, stop: Stop) {
        if tid == self.subreaper.process() {
            self.subreaper_runs = false;
            return;
        }
        let since = Instant::now();
        if !self.is_killing && subreaper::is_ending() {
            self.is_lost = true;
            self.kill_all();
        }
        if self.is_killing {
            self.resume_to_exit(tid, stop)
        } else {
            self.handle_until_resumed(tid, stop)
        }
        self.handling_time += since.elapsed();
    }

    /// Resumes a task only so that it can exit.
    fn resume_to_exit(&mut self, tid: Tid, stop: Stop) {
        let resumed = match stop {
            Stop::Exited(code) => return self.task_ended(tid, Exit::Code(code)),
            Stop::Killed(signal) => return self.task_ended(tid, Exit::Signal(signal)),
            // A task that was killed only because it outlived the root still belongs to the trial.
            Stop::Exit => self.exiting(tid),
            _ => {
                ptrace::kill(tid);
                ptrace::resume(tid, 0).map_err(PauseError::from)
            }
        };
        // An error means that the task has already ended.
        drop(resumed);
    }

    /// Handles a stop. If the task meanwhile leaves that stop for another one, handles that too.
    fn handle_until_resumed(&mut self, tid: Tid, mut stop: Stop) {
        loop {
            match self.dispatch(tid, stop) {
                Err(PauseError::Stopped(next)) => stop = next,
                Ok(()) => break,
                Err(PauseError::Ended) => {
                    self.mark_ending(tid);
                    break;
                }
                Err(PauseError::Refused(error)) => return self.give_up(error),
            }
        }
        if let Some(error) = self.findings.read_error.take() {
            self.give_up(error);
        }
    }

    /// Gives up the trial and kills the tree, because a request failed and the results of the trial could not be trusted.
    fn give_up(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
        self.kill_all();
    }

    /// Marks a task that was killed meanwhile. A later event reports its end.
    fn mark_ending(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
        }
    }

    fn dispatch(&mut self, tid: Tid, stop: Stop) -> Result<(), PauseError> {
        match stop {
            Stop::Exited(code) => self.task_ended(tid, Exit::Code(code)),
            Stop::Killed(signal) => self.task_ended(tid, Exit::Signal(signal)),
            Stop::Seccomp => return self.watched_call(tid),
            Stop::Clone => return self.task_created(tid, stop),
            Stop::Fork | Stop::Vfork => return self.task_created(tid, stop),
            Stop::Exec => return self.executed(tid),
            Stop::Exit => return self.exiting(tid),
            Stop::Trap if self.tasks.get(tid).is_none() => return Ok(self.hold_unannounced(tid)?),
            Stop::Trap => {
                return match self.to_split.remove(&tid) {
                    Some(leaves) => self.split_leaves(tid, &leaves),
                    None => self.resume(tid, 0),
                };
            }
            Stop::Group => return self.enter_group_stop(tid),
            Stop::Syscall => return self.early_syscall_stop(tid),
            Stop::Signal(libc::SIGSEGV) if self.retries_fault(tid) => return self.resume(tid, 0),
            Stop::Signal(signal) => return self.resume(tid, signal),
        }
        Ok(())
    }

    /// Lets a task take part in a group stop of its process. If the task is the root, pagelab may have to stop too.
    fn enter_group_stop(&mut self, tid: Tid) -> Result<(), PauseError> {
        ptrace::listen(tid)?;
        if tid == self.root {
            signals::program_stopped();
        }
        Ok(())
    }

    /// Resumes a task until the next stop at which the tracer has work to do.
    fn resume(&mut self, tid: Tid, signal: i32) -> Result<(), PauseError> {
        let to_first_call = self.tasks.get(tid).is_some_and(|task| task.stops_to_first_call.is_some());
        let sent = if to_first_call { ptrace::resume_to_syscall(tid, signal) } else { ptrace::resume(tid, signal) };
        Ok(sent?)
    }

    fn task_ended(&mut self, tid: Tid, exit: Exit) {
        if tid == self.root {
            self.root_ended = Some((exit, Instant::now()));
            signals::stop_forwarding();
        }
        self.to_split.remove(&tid);
        if self.tasks.remove(tid).is_none() {
            self.ended_unannounced.insert(tid);
        }
        self.unannounced.remove(&tid);
        if !self.is_killing
            && let Err(error) = self.resume_abandoned()
        {
            self.give_up(error);
        }
    }
}
