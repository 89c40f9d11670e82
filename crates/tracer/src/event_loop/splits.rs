//! Splits PMD leaves into base-page entries, for policies that want large folios without large leaves.
//!
//! A change of one page's VMA flags splits the leaf that maps it, and moves no page: `vma_adjust_trans_huge`,
//! mm/huge_memory.c. MADV_DONTDUMP sets a flag that only core dumps read. MADV_DODUMP clears it, and the kernel merges the VMAs
//! again. A running task makes the calls: process_madvise(2) does not accept this advice for another process.
//!
//! Faults populate memory without a stop. So the tracer looks for leaves at every tick of a clock, and splits those that it finds.
//! Memory that is populated and freed between two ticks keeps its leaves.

use std::time::Duration;

use policy::call::madv;
use policy::cause::Cause;
use policy::size::PageSize;

use super::Tree;
use crate::interrupted::{Interrupted, repeat_interrupted_call};
use crate::paused::{PauseError, Paused};
use crate::ptrace::{self, Tid};
use crate::registers::is_error;

/// Interval between two ticks.
pub(super) const TICK_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of leaves that are split before their VMAs are merged again. Each pair of leaves adds two VMAs meanwhile; a
/// process may have 65530 (vm.max_map_count).
const MAX_LEAVES_AT_ONCE: usize = 2048;

/// Address ranges that PMD leaves map.
pub(super) type Leaves = Vec<(u64, u64)>;

impl Tree<'_> {
    /// Interrupts a running task of every process that has new PMD leaves. Sleeping tasks are left alone: some calls would
    /// fail with EINTR, and memory that no task uses can wait.
    pub(super) fn interrupt_to_split(&mut self) {
        if self.is_killing || self.root_started.is_none() {
            return;
        }
        for process in self.tasks.processes() {
            let Some(task) = self.running_task(process) else { continue };
            let missed = self.to_split.iter().find(|(tid, _)| **tid == task).map(|(_, leaves)| leaves.clone());
            let Some(witness) = self.witness.as_mut() else { return };
            let leaves = missed.unwrap_or_else(|| witness.new_leaves(process));
            if !leaves.is_empty() && ptrace::interrupt(task).is_ok() {
                self.to_split.insert(task, leaves);
            }
        }
    }

    fn running_task(&self, process: Tid) -> Option<Tid> {
        let is_own = |tid: &Tid| self.tasks.get(*tid).is_some_and(|task| task.process == process && !task.ending);
        let is_ready = |tid: &Tid| self.tasks.get(*tid).is_some_and(|task| task.space.borrow().call_site.is_some());
        let is_running = |tid: &Tid| matches!(host::task_state(*tid), Ok(Some(b'R')));
        let running = self.tasks.ids().into_iter().filter(is_own).filter(is_ready).filter(is_running);
        // A task that sleeps most of the time may be about to sleep in a call again, and not every interrupted call can be
        // repeated.
        // Without this time, any running task will do.
        running.max_by_key(|tid| host::task_processor_ns(tid.cast_unsigned()))
    }

    /// Makes an interrupted task split these leaves.
    pub(super) fn split_leaves(&mut self, tid: Tid, leaves: &Leaves) -> Result<(), PauseError> {
        repeat_interrupted_call(tid)?;
        let site = self.tasks.get(tid).and_then(|task| task.space.borrow().call_site);
        let Some(mut interrupted) = site.map(|site| Interrupted::at(tid, site)).transpose()?.flatten() else {
            return self.resume(tid, 0);
        };
        let large = self.rewriting.large;
        for blocks in leaves.iter().flat_map(|leaves| blocks(*leaves, large)) {
            if !self.split_blocks(interrupted.paused(), blocks)? {
                break;
            }
        }
        interrupted.resume()
    }

    /// Splits the leaves of some adjacent blocks. Returns false if the program's own filter or the kernel refuses that.
    fn split_blocks(&mut self, paused: &mut Paused, (start, end): (u64, u64)) -> Result<bool, PauseError> {
        let (large, base) = (self.rewriting.large.bytes(), self.rewriting.base.bytes());
        let advice = [start, end - start, madv::DODUMP, 0, 0, 0];
        if !self.context().allows(paused, libc::SYS_madvise, advice) {
            self.findings.add_cause(Cause::FilteredByProgram, end - start);
            return Ok(false);
        }
        // A range from the second page of a block to the first page of the next splits both leaves.
        let mut refused = 0;
        for at in (start..end).step_by(2 * large as usize) {
            let bytes = if at + large < end { large } else { base };
            let result = paused.call(libc::SYS_madvise, [at + base, bytes, madv::DONTDUMP, 0, 0, 0])?;
            refused = if is_error(result) { result } else { refused };
        }
        let result = paused.call(libc::SYS_madvise, advice)?;
        let refused = if is_error(result) { result } else { refused };
        // ENOMEM: a part of the range was unmapped meanwhile, or there are too many VMAs.
        if refused != 0 && refused != -i64::from(libc::ENOMEM) {
            self.findings.add_cause(Cause::AdviceRefused { errno: -refused as i32 }, end - start);
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whole blocks of `large` bytes, in groups of at most [`MAX_LEAVES_AT_ONCE`].
fn blocks((start, end): (u64, u64), large: PageSize) -> Vec<(u64, u64)> {
    let (first, end) = (large.align_up(start).unwrap_or(end), large.align_down(end));
    let step = MAX_LEAVES_AT_ONCE as u64 * large.bytes();
    (first..end).step_by(step as usize).map(|at| (at, (at + step).min(end))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_are_split_in_bounded_groups() {
        let m2 = PageSize::M2;
        assert_eq!(blocks((0x1ff000, 0x601000), m2), [(0x200000, 0x600000)]);
        assert!(blocks((0x1ff000, 0x3ff000), m2).is_empty());
        let groups = blocks((0, 5 << 32), m2);
        assert_eq!(groups.len(), 5);
        assert_eq!((groups[0], groups[4]), ((0, 1 << 32), (4 << 32, 5 << 32)));
    }
}
