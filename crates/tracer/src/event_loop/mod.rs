//! Follows the traced tree from the start of its root to the end of its last task.

mod births;
mod stops;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use study::trial::Exit;

use super::after_root::{AfterRoot, Leftovers};
use super::call_context::Findings;
use super::ended::{Ended, Looks, Usage};
use super::filter::{self, Watch};
use super::freed_ranges;
use super::launch::{self, Launch, LaunchError, Started, ThpSetting};
use super::pace::Served;
use super::paused::Lost;
use super::ptrace::{self, Stop, Tid};
use super::refused_requests;
use super::rewriting::Rewriting;
use super::subreaper::{self, Subreaper};
use super::tasks::{Task, Tasks};
use super::witness::Witness;
use crate::signals;

/// Times of the processes that outlived the root.
#[derive(Clone, Copy, Debug, Default)]
struct Outlived {
    s: f64,
    cpu_s: f64,
    was_cut: bool,
}

/// Interval at which tasks that outlive the root are sampled.
const DOUBT: Duration = Duration::from_millis(5);

struct Tree<'a> {
    rewriting: &'a Rewriting,
    /// The calls that stop because of the policy.
    changed: Vec<Watch>,
    witness: Option<&'a mut dyn Witness>,
    tasks: Tasks,
    /// Tasks that stopped before the event that announces them.
    unannounced: HashSet<Tid>,
    /// Tasks that ended before their announcement.
    gone_unannounced: HashSet<Tid>,
    root: Tid,
    root_started: Option<Instant>,
    root_ended: Option<(Exit, Instant)>,
    looks: Looks,
    in_hand: Duration,
    served: Served,
    findings: Findings,
    /// Reports when the tree has ended: wait(2) then finds no child of it (ECHILD).
    subreaper: Subreaper,
    /// Whether the subreaper still runs, and so the tree may.
    subreaper_lives: bool,
    outlived: Outlived,
    /// Whether every process of the tree is killed as soon as it is seen.
    killing: bool,
    /// Whether the trial is lost, so that the witness need not look any more.
    lost: bool,
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
    let witnessed =
        witness.as_ref().map(|witness| freed_ranges::watches(witness.extent(), &changed)).unwrap_or_default();
    let watches = [changed.clone(), witnessed, refused_requests::watches()].concat();
    ptrace::forget_ready();
    let (stops, thp) = (ptrace::stops(), ThpSetting::of(launch, rewriting));
    let (subreaper, mut started) = launch::start(launch, filter::program(&watches), thp)?;
    if let Some(witness) = &mut witness {
        witness.begins(started.tid);
    }
    signals::leash_subreaper(subreaper.process());
    let mut tree = Tree::new(started.tid, subreaper, rewriting, changed, witness);
    signals::leash_in(started.tid, started.session);
    let followed =
        started.release().map_err(LaunchError::from).and_then(|()| tree.follow(leftovers, &mut started, &path));
    signals::unleash();
    signals::unleash_subreaper();
    let killed_leftovers = followed?;
    started.finish();
    tree.ended(killed_leftovers, ptrace::stops() - stops).ok_or(LaunchError::Interrupted)
}

impl<'a> Tree<'a> {
    fn new(
        root: Tid,
        subreaper: Subreaper,
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
            subreaper,
            subreaper_lives: true,
            outlived: Outlived::default(),
            killing: false,
            lost: false,
            refused: None,
        }
    }

    /// The result; `None` if the root ended before its program began.
    fn ended(self, killed_leftovers: usize, stops: u64) -> Option<Ended> {
        let ((exit, end), start) = (self.root_ended?, self.root_started?);
        let usage = Usage::from(self.subreaper.used()?);
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
            refused_requests: self.findings.refused_requests.found,
            killed_leftovers,
            time_was_up: self.subreaper.time_is_up(),
            outlived_s: self.outlived.s,
            outlived_cpu_s: self.outlived.cpu_s,
            cut_short: killed_leftovers > 0 && self.outlived.was_cut,
        })
    }

    /// Follows the tree to its end. Returns how many processes had to be killed.
    fn follow(&mut self, leftovers: Leftovers, started: &mut Started, path: &Path) -> Result<usize, LaunchError> {
        let mut killed = 0;
        while self.subreaper_lives {
            if self.root_ended.is_some() && self.tasks.is_empty() {
                // The monitor of the program's terminal is the last process of the tree.
                started.finish();
            }
            if let (Some(_), Leftovers::KillAfter(grace), false) = (self.root_ended, leftovers, self.killing) {
                self.wait_for_leftovers(grace);
                if self.subreaper_lives && !self.killing {
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
        if self.subreaper.used().is_none() {
            self.go_on_without_subreaper();
        }
        match self.refused.take() {
            Some(error) => Err(LaunchError::GivenUp(error)),
            None if self.subreaper.is_stuck() => Err(LaunchError::Immortal(self.tasks.processes())),
            None if self.root_started.is_none() => started.failure(path).map_or(Ok(killed), Err),
            None => Ok(killed),
        }
    }

    /// The subreaper was killed. Then only the ends of the tasks themselves show that the tree has ended.
    fn go_on_without_subreaper(&mut self) {
        self.refused.get_or_insert_with(|| io::Error::other("somebody killed its subreaper"));
        self.kill_all();
        while !self.tasks.is_empty() {
            match ptrace::try_wait(-1) {
                Ok(Some((tid, stop))) => self.handle(tid, stop),
                Ok(None) => {
                    std::thread::sleep(DOUBT);
                    // A task whose status cannot be read stays until its end is waited for.
                    self.tasks.retain(|tid| ptrace::is_traced_here(tid).unwrap_or(true));
                }
                Err(_) => return,
            }
        }
    }

    /// Gives processes that outlive the root their time.
    fn wait_for_leftovers(&mut self, grace: Duration) {
        let outlives = !self.tasks.is_empty();
        let mut after = AfterRoot::new();
        while self.subreaper_lives && !subreaper::is_ending() && after.goes_on(grace) {
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

    /// Kills the remaining tasks, and from now on every task that they have just created. Returns how many processes it killed.
    fn kill_all(&mut self) -> usize {
        self.killing = true;
        let left = self.tasks.processes();
        left.iter().for_each(|process| ptrace::kill(*process));
        // Processes that have escaped the tracer are left to the subreaper.
        if self.subreaper_lives {
            self.subreaper.end();
        }
        left.len()
    }

    fn handle(&mut self, tid: Tid, stop: Stop) {
        if tid == self.subreaper.process() {
            self.subreaper_lives = false;
            return;
        }
        let since = Instant::now();
        if !self.killing && subreaper::is_ending() {
            self.lost = true;
            self.kill_all();
        }
        if self.killing {
            self.put_down(tid, stop)
        } else {
            self.settle(tid, stop)
        }
        self.in_hand += since.elapsed();
    }

    /// Resumes a task only so that it can exit.
    fn put_down(&mut self, tid: Tid, stop: Stop) {
        let gone_on = match stop {
            Stop::Exited(code) => return self.gone(tid, Exit::Code(code)),
            Stop::Killed(signal) => return self.gone(tid, Exit::Signal(signal)),
            // A task that merely outlived the root still belongs to the trial.
            Stop::Exit => self.ending(tid),
            _ => {
                ptrace::kill(tid);
                ptrace::resume(tid, 0).map_err(Lost::from)
            }
        };
        // An error means that the task is already gone.
        drop(gone_on);
    }

    /// Handles a stop, and the further stops in which the task is found meanwhile.
    fn settle(&mut self, tid: Tid, mut stop: Stop) {
        loop {
            match self.react(tid, stop) {
                Err(Lost::Stopped(next)) => stop = next,
                Ok(()) => break,
                Err(Lost::Gone) => {
                    self.was_killed(tid);
                    break;
                }
                Err(Lost::Refused(error)) => return self.give_up(error),
            }
        }
        if let Some(error) = self.findings.unread.take() {
            self.give_up(error);
        }
    }

    /// Gives up the trial and kills the tree: a request failed, and the trial cannot be trusted.
    fn give_up(&mut self, error: io::Error) {
        self.refused.get_or_insert(error);
        self.kill_all();
    }

    /// A task was killed meanwhile. Its end is reported by an event of its own.
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
            Stop::Trap if self.tasks.get(tid).is_none() => return Ok(self.early(tid)?),
            Stop::Trap => return self.send_on(tid, 0),
            Stop::Group => return self.stopped(tid),
            Stop::Syscall => return self.first_calls(tid),
            Stop::Signal(libc::SIGSEGV) if self.tries_again(tid) => return self.send_on(tid, 0),
            Stop::Signal(signal) => return self.send_on(tid, signal),
        }
        Ok(())
    }

    /// A task takes part in a group stop of its process. If the process is the root's, pagelab may have to stop with it.
    fn stopped(&mut self, tid: Tid) -> Result<(), Lost> {
        ptrace::listen(tid)?;
        if tid == self.root {
            signals::program_stopped();
        }
        Ok(())
    }

    /// Resumes a task until the next stop at which the tracer has work to do.
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
        if !self.killing
            && let Err(error) = self.adopt_abandoned()
        {
            self.give_up(error);
        }
    }
}
