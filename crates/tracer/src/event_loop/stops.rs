//! Handles the stops of a task: serves its call, prepares its new image, and has its memory inspected before it is given back.

use std::time::Instant;

use policy::cause::Cause;
use policy::removal::Unwatched;

use super::Tree;
use crate::call_context::{CallContext, pass};
use crate::freed_ranges::{self, Taken};
use crate::paused::{Lost, Paused};
use crate::ptrace::{self, Tid};
use crate::registers::NATIVE;
use crate::tasks::Space;
use crate::witness::Witness;
use crate::{calls, filter, signals};

/// The signal in the status of a task that is about to end (wait(2)).
const SIGNAL: i32 = 0x7f;

impl Tree<'_> {
    /// A task is stopped at a watched call.
    pub(super) fn watched_call(&mut self, tid: Tid) -> Result<(), Lost> {
        let Some(task) = self.tasks.get(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let space = task.space.clone();
        let paused = Paused::at_entry(tid)?;
        if ptrace::event_message(tid)? != u64::from(filter::MARK) {
            // The program's own filter asks for a tracer. The program must see none, so the call fails with
            // ENOSYS (`__seccomp_filter` in kernel/seccomp.c).
            return paused.finish(-i64::from(libc::ENOSYS));
        }
        self.witness_call(&paused, &space.borrow())?;
        if !self.changed.iter().any(|watch| watch.stops(paused.number(), &paused.arguments())) {
            return pass(&mut self.findings, paused);
        }
        let before = ptrace::stops();
        let sent = calls::serve(&mut self.context(), &mut space.borrow_mut(), paused);
        self.served.count(ptrace::stops() - before);
        sent
    }

    /// Has the witness inspect memory that a call is about to give back. Before its program begins, the root's
    /// memory is pagelab's.
    fn witness_call(&mut self, paused: &Paused, space: &Space) -> Result<(), Lost> {
        let begun = self.witness.as_ref().filter(|_| self.root_started.is_some());
        let Some(extent) = begun.map(|witness| witness.extent()) else { return Ok(()) };
        let tid = paused.tid();
        if self.rewriting.hugetlb && freed_ranges::may_shrink_pool(paused) {
            let (process, pool_bytes) =
                (self.tasks.get(tid).map_or(tid, |task| task.process), space.pool.backed_bytes());
            self.bear_witness(false, |witness| witness.shrinks(tid, process, pool_bytes));
        }
        let Taken { ranges, is_lessened, is_image, unwatched } =
            freed_ranges::taken(paused, space, &self.tasks, self.rewriting, extent)?;
        if let Some(way) = unwatched {
            self.bear_witness(false, |witness| witness.takes_unwatched(tid, way));
        }
        if is_lessened {
            self.bear_witness(false, |witness| witness.lessens(tid));
        }
        for (start, end) in ranges {
            self.bear_witness(false, |witness| witness.unmaps(tid, start, end));
        }
        if is_image && self.tasks.is_memory_of_one_process(tid) {
            self.bear_witness(false, |witness| witness.replaces(tid));
        }
        Ok(())
    }

    pub(super) fn context(&mut self) -> CallContext<'_> {
        CallContext { rewriting: self.rewriting, tasks: &mut self.tasks, findings: &mut self.findings }
    }

    /// Whether a fault may come from memory that was being moved to other pages at that instant. Each such
    /// fault is retried once; if it was the program's own, it occurs again.
    pub(super) fn tries_again(&mut self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get_mut(tid) else { return false };
        let moved = |address: &u64| task.space.borrow().pool.was_moved(*address);
        let Some(address) = ptrace::fault_address(tid).filter(moved) else { return false };
        let Ok(registers) = ptrace::registers(tid) else { return false };
        let fault = Some((address, registers.words[NATIVE.instruction]));
        let again = task.retried != fault;
        task.retried = if again { fault } else { None };
        again
    }

    /// A task has the memory of a new image.
    pub(super) fn executed(&mut self, tid: Tid) -> Result<(), Lost> {
        let former = ptrace::event_message(tid)? as Tid;
        self.tasks.executed(tid, former);
        if let Some(witness) = &mut self.witness {
            witness.replaced(tid);
        }
        let native = calls::is_native(tid)?;
        if !native {
            self.findings.cause(Cause::ForeignAbi, 0);
        }
        if calls::lost_privilege(tid)? {
            self.findings.cause(Cause::PrivilegeNotGained, 0);
        }
        if tid == self.root && self.root_started.is_none() {
            self.root_started = Some(Instant::now());
        }
        let is_early = native && calls::has_early_memory(tid, self.rewriting)?;
        if let Some(task) = self.tasks.get_mut(tid).filter(|_| is_early) {
            // The next two stops are the end of execve and the first call of the new image.
            task.stops_to_first_call = Some(2);
        }
        self.send_on(tid, 0)
    }

    /// Counts the stops up to the first call of a new image, whose zeroed data (bss) no call has mapped.
    pub(super) fn first_calls(&mut self, tid: Tid) -> Result<(), Lost> {
        let Some(task) = self.tasks.get_mut(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let left = task.stops_to_first_call.take();
        if left == Some(2) {
            task.stops_to_first_call = Some(1);
            return self.send_on(tid, 0);
        }
        match left {
            Some(_) => calls::advise_early_memory(&mut self.context(), tid),
            None => self.send_on(tid, 0),
        }
    }

    /// A task is about to end.
    pub(super) fn ending(&mut self, tid: Tid) -> Result<(), Lost> {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
            let process = task.process;
            // The first task of a process that is killed can end without a stop.
            let first_is_user = self.tasks.get(process).is_some_and(|first| !first.ending);
            if process != tid && first_is_user && ptrace::is_zombie(process)? {
                self.was_killed(process);
            }
            if self.tasks.is_last_user_of_memory(tid) {
                if ptrace::event_message(tid)? as i32 & SIGNAL == libc::SIGKILL {
                    self.bear_witness(process == self.root, |witness| witness.takes_unwatched(tid, Unwatched::Killed));
                }
                self.bear_witness(process == self.root, |witness| witness.ends(tid));
            }
        }
        Ok(ptrace::resume(tid, 0)?)
    }

    /// Lets the witness look. Its time is not part of the program's wall time if no other task of the tree
    /// could run meanwhile, or if the root is exiting or has ended.
    fn bear_witness(&mut self, root_is_done: bool, look: impl FnOnce(&mut dyn Witness)) {
        let Some(witness) = self.witness.as_mut().filter(|_| !self.lost && signals::arrived().is_none()) else {
            return;
        };
        let since = Instant::now();
        look(*witness);
        let took = if self.root_ended.is_some() {
            &mut self.looks.after_s
        } else if root_is_done || self.tasks.is_single() {
            &mut self.looks.apart_s
        } else {
            &mut self.looks.within_s
        };
        *took += since.elapsed().as_secs_f64();
    }
}
