//! Handles the stops of a task: serves its call, prepares its new image, and has its memory inspected before it is freed.

use std::time::Instant;

use policy::cause::Cause;
use policy::removal::Unwatched;

use super::Tree;
use crate::call_context::{CallContext, pass};
use crate::filter::Watch;
use crate::freed_ranges::{self, FreedRanges};
use crate::interrupted::CallSite;
use crate::paused::{PauseError, Paused};
use crate::ptrace::{self, Tid};
use crate::registers::NATIVE;
use crate::tasks::Space;
use crate::witness::Witness;
use crate::{calls, filter, observed_mappings, signals};

/// The bits of the signal in a wait status (wait(2)).
const SIGNAL_MASK: i32 = 0x7f;

impl Tree<'_> {
    /// Serves a task that is stopped at a watched call.
    pub(super) fn watched_call(&mut self, tid: Tid) -> Result<(), PauseError> {
        let Some(task) = self.tasks.get(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let space = task.space.clone();
        let paused = Paused::at_entry(tid)?;
        if ptrace::event_message(tid)? != u64::from(filter::MARK) {
            // The program's own filter requests a tracer. The program must see none, so the call fails with
            // ENOSYS (`__seccomp_filter` in kernel/seccomp.c).
            return paused.finish(-i64::from(libc::ENOSYS));
        }
        if self.rewriting.applied_mechanism().pte_mapped && space.borrow().call_site.is_none() {
            space.borrow_mut().call_site = CallSite::of(&paused);
        }
        self.inspect_before_call(&paused, &space.borrow())?;
        let stops = |watches: &[Watch]| watches.iter().any(|watch| watch.stops(paused.number(), &paused.arguments()));
        if !stops(&self.policy_watches) {
            return match &mut self.witness {
                Some(witness) if stops(&self.mapping_watches) && self.root_started.is_some() => {
                    let process = self.tasks.get(tid).map_or(tid, |task| task.process);
                    observed_mappings::report(&mut self.findings, paused, process, |call| witness.maps(call))
                }
                _ => pass(&mut self.findings, paused),
            };
        }
        let before = ptrace::stops();
        let sent = calls::serve(&mut self.context(), &mut space.borrow_mut(), paused);
        self.served.count(ptrace::stops() - before);
        sent
    }

    /// Lets the witness inspect memory that a call is about to free. Before its exec the root has a copy of pagelab's memory, which
    /// is not inspected.
    fn inspect_before_call(&mut self, paused: &Paused, space: &Space) -> Result<(), PauseError> {
        let begun = self.witness.as_ref().filter(|_| self.root_started.is_some());
        let Some(inspected_removals) = begun.map(|witness| witness.inspected_removals()) else { return Ok(()) };
        let tid = paused.tid();
        if self.rewriting.hugetlb && freed_ranges::may_shrink_pool(paused) {
            let (process, pool_bytes) =
                (self.tasks.get(tid).map_or(tid, |task| task.process), space.pool.backed_bytes());
            self.inspect(false, |witness| witness.shrinks_pool(tid, process, pool_bytes));
        }
        let FreedRanges { ranges, reduces_rss, replaces_image, unwatched } =
            freed_ranges::of_call(paused, space, &self.tasks, self.rewriting, inspected_removals)?;
        if let Some(way) = unwatched {
            self.inspect(false, |witness| witness.frees_unwatched(tid, way));
        }
        if reduces_rss {
            self.inspect(false, |witness| witness.reduces_rss(tid));
        }
        for (start, end) in ranges {
            self.inspect(false, |witness| witness.unmaps(tid, start, end));
        }
        if replaces_image && self.tasks.is_memory_of_one_process(tid) {
            self.inspect(false, |witness| witness.replaces(tid));
        }
        Ok(())
    }

    /// Lets the witness count the accesses since the last tick.
    pub(super) fn tick_witness(&mut self) {
        if let Some(witness) = self.witness.as_mut().filter(|_| !self.is_lost && !self.is_killing) {
            witness.ticks(&self.findings.window_ranges);
        }
    }

    pub(super) fn context(&mut self) -> CallContext<'_> {
        CallContext { rewriting: self.rewriting, tasks: &mut self.tasks, findings: &mut self.findings }
    }

    /// Whether a fault may come from memory that was being moved to other pages at that instant. Each such
    /// fault is retried once; if it was the program's own, it occurs again.
    pub(super) fn retries_fault(&mut self, tid: Tid) -> bool {
        let Some(task) = self.tasks.get_mut(tid) else { return false };
        let moved = |address: &u64| task.space.borrow().pool.was_moved(*address);
        let Some(address) = ptrace::fault_address(tid).filter(moved) else { return false };
        let Ok(registers) = ptrace::registers(tid) else { return false };
        let fault = Some((address, registers.words[NATIVE.instruction]));
        let again = task.retried_fault != fault;
        task.retried_fault = if again { fault } else { None };
        again
    }

    /// Handles an exec: the task has the memory of a new image.
    pub(super) fn executed(&mut self, tid: Tid) -> Result<(), PauseError> {
        let former = ptrace::event_message(tid)? as Tid;
        self.tasks.executed(tid, former);
        self.findings.window_ranges.retain(|place| place.process != tid);
        if let Some(witness) = &mut self.witness {
            witness.replaced(tid);
        }
        let native = calls::is_native(tid)?;
        if !native {
            self.findings.add_cause(Cause::ForeignAbi, 0);
        }
        if calls::lost_privilege(tid)? {
            self.findings.add_cause(Cause::PrivilegeNotGained, 0);
        }
        if tid == self.root && self.root_started.is_none() {
            self.root_started = Some(Instant::now());
        }
        let is_early = native && calls::has_early_memory(tid, self.rewriting)?;
        if let Some(task) = self.tasks.get_mut(tid).filter(|_| is_early) {
            // The next two stops are the end of execve and the first call of the new image.
            task.stops_to_first_call = Some(2);
        }
        self.resume(tid, 0)
    }

    /// Handles the stops up to the first call of a new image. At that call it advises the zeroed data (bss) and the heap, which no
    /// watched call has mapped.
    pub(super) fn early_syscall_stop(&mut self, tid: Tid) -> Result<(), PauseError> {
        let Some(task) = self.tasks.get_mut(tid) else { return Ok(ptrace::resume(tid, 0)?) };
        let left = task.stops_to_first_call.take();
        if left == Some(2) {
            task.stops_to_first_call = Some(1);
            return self.resume(tid, 0);
        }
        match left {
            Some(_) => {
                let space = task.space.clone();
                calls::advise_early_memory(&mut self.context(), &mut space.borrow_mut(), tid)
            }
            None => self.resume(tid, 0),
        }
    }

    /// Handles a task that is about to end: has its memory inspected if no other task uses it.
    pub(super) fn exiting(&mut self, tid: Tid) -> Result<(), PauseError> {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.ending = true;
            let process = task.process;
            // The first task of a process that is killed can end without a stop.
            let first_is_user = self.tasks.get(process).is_some_and(|first| !first.ending);
            if process != tid && first_is_user && ptrace::is_zombie(process)? {
                self.mark_ending(process);
            }
            if self.tasks.is_last_user_of_memory(tid) {
                if ptrace::event_message(tid)? as i32 & SIGNAL_MASK == libc::SIGKILL {
                    self.inspect(process == self.root, |witness| witness.frees_unwatched(tid, Unwatched::Killed));
                }
                self.inspect(process == self.root, |witness| witness.ends(tid));
            }
        }
        Ok(ptrace::resume(tid, 0)?)
    }

    /// Lets the witness inspect memory. The time is not part of the program's wall time if no other task of the tree could run
    /// meanwhile, or if the root is exiting or has ended.
    fn inspect(&mut self, root_is_done: bool, inspection: impl FnOnce(&mut dyn Witness)) {
        let Some(witness) = self.witness.as_mut().filter(|_| !self.is_lost && signals::arrived().is_none()) else {
            return;
        };
        let since = Instant::now();
        inspection(*witness);
        let took = if self.root_ended.is_some() {
            &mut self.inspection_times.after_root_s
        } else if root_is_done || self.tasks.is_single() {
            &mut self.inspection_times.excluded_s
        } else {
            &mut self.inspection_times.included_s
        };
        *took += since.elapsed().as_secs_f64();
    }
}
